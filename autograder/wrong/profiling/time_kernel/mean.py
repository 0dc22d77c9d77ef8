# expect: That is the mean
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
    gpu.synchronize()
    return statistics.mean(a.elapsed_time(b) for a, b in pairs)
