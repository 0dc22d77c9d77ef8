# expect: the ratio is upside down
def compare(gpu, old, new, flush, warm_up, samples):
    """Return how many times faster the new kernel is than the old one."""

    def timed(launch):
        start = gpu.Event(enable_timing=True)
        stop = gpu.Event(enable_timing=True)
        start.record()
        launch()
        stop.record()
        gpu.synchronize()
        return start.elapsed_time(stop)

    def median_of(launch):
        for _ in range(warm_up):
            launch()
        found = []
        for _ in range(samples):
            flush()
            found.append(timed(launch))
        return statistics.median(found)

    return 1 / (median_of(old) / median_of(new))
