# expect: median_ms is
import time


def time_kernel(gpu, launch, flush, warm_up, samples):
    for _ in range(warm_up):
        launch()
    found = []
    for _ in range(samples):
        flush()
        start = time.perf_counter()
        launch()
        found.append((time.perf_counter() - start) * 1e3)
    return statistics.median(found)
