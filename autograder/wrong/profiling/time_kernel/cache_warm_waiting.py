# expect: call flush() before every sample
def time_kernel(gpu, launch, flush, warm_up, samples):
    for _ in range(warm_up):
        launch()
    pairs = []
    for _ in range(samples):
        start = gpu.Event(enable_timing=True)
        stop = gpu.Event(enable_timing=True)
        start.record()
        launch()
        stop.record()
        gpu.synchronize()
        pairs.append((start, stop))
    gpu.synchronize()
    return statistics.median(a.elapsed_time(b) for a, b in pairs)
