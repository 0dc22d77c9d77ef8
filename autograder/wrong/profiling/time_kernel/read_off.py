# expect: A real one was told nothing: launch, and measure
def time_kernel(gpu, launch, flush, warm_up, samples):
    return statistics.median(launch.cold_ms[warm_up : warm_up + samples])
