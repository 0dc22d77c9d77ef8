# expect: still held when kept is read
def peak_memory(gpu, fn):
    """Return (peak, kept) in bytes: what fn() needs, and what it leaves.

    peak: the most in use during the call, beyond what was in use before.
    kept: what is still in use when the call's result is gone.
    gpu: torch.cuda, or a practice GPU.
    """
    fn()  # libraries make their workspaces on the first call
    before = gpu.memory_allocated()
    gpu.reset_peak_memory_stats()
    result = fn()
    peak = gpu.max_memory_allocated()
    kept = gpu.memory_allocated()
    return peak - before, kept - before
