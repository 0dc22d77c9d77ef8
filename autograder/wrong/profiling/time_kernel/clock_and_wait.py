# expect: counts the launch and the waking up
def time_kernel(gpu, launch, flush, warm_up, samples):
    for _ in range(warm_up):
        launch()
    found = []
    for _ in range(samples):
        flush()
        gpu.synchronize()
        start = gpu.perf_counter()
        launch()
        gpu.synchronize()
        found.append((gpu.perf_counter() - start) * 1e3)
    return statistics.median(found)
