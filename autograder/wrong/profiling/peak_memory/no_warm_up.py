# expect: The first call's workspace
def peak_memory(gpu, fn):
    """Return (peak, kept) in bytes: what fn() needs, and what it leaves.

    peak: the most in use during the call, beyond what was in use before.
    kept: what is still in use when the call's result is gone.
    gpu: torch.cuda, or a practice GPU.
    """
    before = gpu.memory_allocated()
    gpu.reset_peak_memory_stats()
    result = fn()
    peak = gpu.max_memory_allocated()
    del result
    kept = gpu.memory_allocated()
    return peak - before, kept - before
