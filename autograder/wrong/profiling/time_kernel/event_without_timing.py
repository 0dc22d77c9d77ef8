# expect: Event(enable_timing=True)
def time_kernel(gpu, launch, flush, warm_up, samples):
    for _ in range(warm_up):
        launch()
    pairs = []
    for _ in range(samples):
        start = gpu.Event()
        stop = gpu.Event()
        flush()
        start.record()
        launch()
        stop.record()
        pairs.append((start, stop))
    gpu.synchronize()
    return statistics.median(a.elapsed_time(b) for a, b in pairs)
