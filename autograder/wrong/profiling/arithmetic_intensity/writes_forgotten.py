# expect: The result is written to memory too
def arithmetic_intensity(flops, read, written, element_bytes):
    return flops / (read * element_bytes)
