# expect: call gpu.synchronize() before elapsed_time
def time_kernel(gpu, launch, flush, warm_up, samples):
    for _ in range(warm_up):
        launch()
    pairs = []
    for _ in range(samples):
        start = gpu.Event(enable_timing=True)
        stop = gpu.Event(enable_timing=True)
        flush()
        start.record()
        launch()
        stop.record()
        pairs.append((start, stop))
    return statistics.median(a.elapsed_time(b) for a, b in pairs)
