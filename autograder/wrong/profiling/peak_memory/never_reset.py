# expect: An older and higher peak
def peak_memory(gpu, fn):
    """Return (peak, kept) in bytes: what fn() needs, and what it leaves.

    peak: the most in use during the call, beyond what was in use before.
    kept: what is still in use when the call's result is gone.
    gpu: torch.cuda, or a practice GPU.
    """
    fn()  # libraries make their workspaces on the first call
    before = gpu.memory_allocated()
    result = fn()
    peak = gpu.max_memory_allocated()
    del result
    kept = gpu.memory_allocated()
    return peak - before, kept - before
