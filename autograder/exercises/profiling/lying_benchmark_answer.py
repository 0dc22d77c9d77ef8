"""Three lies, all in favour of the new kernel.

old is timed with its first launch, which compiles; new finds its input in the cache,
where old has left it; and the mean of the one is divided by the minimum of the other.
"""

from __future__ import annotations

import statistics


# [exercise:lying_benchmark]
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

    # [hole]
    # [broken]
    # old_ms = []
    # for _ in range(samples):
    #     flush()
    #     old_ms.append(timed(old))
    # new_ms = [timed(new) for _ in range(samples)]
    # return statistics.fmean(old_ms) / min(new_ms)
    # [/broken]
    def median_of(launch):
        for _ in range(warm_up):
            launch()
        found = []
        for _ in range(samples):
            flush()
            found.append(timed(launch))
        return statistics.median(found)

    return median_of(old) / median_of(new)
    # [/hole]


# [/exercise]
