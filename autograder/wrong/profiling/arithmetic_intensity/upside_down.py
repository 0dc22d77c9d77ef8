# expect: divide the other way round
def arithmetic_intensity(flops, read, written, element_bytes):
    return (read + written) * element_bytes / flops
