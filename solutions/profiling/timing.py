"""Time one launch of a kernel by events, with its input out of the cache."""

from __future__ import annotations

import statistics


# [exercise:time_kernel]
def time_kernel(gpu, launch, flush, warm_up, samples):
    """Return the median time of one launch, in ms on the device.

    gpu: torch.cuda, or a practice GPU.
    launch: starts the kernel once and returns at once.
    flush: queues work that empties the cache.
    warm_up, samples: launches to discard, and launches to time.
    """
    # [hole]
    for _ in range(warm_up):
        launch()
    pairs = []
    for _ in range(samples):
        before = gpu.Event(enable_timing=True)
        after = gpu.Event(enable_timing=True)
        flush()  # also keeps the device busy while we launch
        before.record()
        launch()
        after.record()
        pairs.append((before, after))
    gpu.synchronize()
    return statistics.median(a.elapsed_time(b) for a, b in pairs)
    # [/hole]


# [/exercise]
