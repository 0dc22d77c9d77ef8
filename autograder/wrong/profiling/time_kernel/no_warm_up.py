# expect: discard warm_up launches first
def time_kernel(gpu, launch, flush, warm_up, samples):
    for _ in range(0):
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
    gpu.synchronize()
    return statistics.median(a.elapsed_time(b) for a, b in pairs)
