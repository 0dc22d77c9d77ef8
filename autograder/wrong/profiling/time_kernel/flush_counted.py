# expect: flush() stands between the two events
def time_kernel(gpu, launch, flush, warm_up, samples):
    for _ in range(warm_up):
        launch()
    pairs = []
    for _ in range(samples):
        start = gpu.Event(enable_timing=True)
        stop = gpu.Event(enable_timing=True)
        start.record()
        flush()
        launch()
        stop.record()
        pairs.append((start, stop))
    gpu.synchronize()
    return statistics.median(a.elapsed_time(b) for a, b in pairs)
