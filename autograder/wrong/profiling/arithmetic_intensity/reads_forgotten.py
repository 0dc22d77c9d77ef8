# expect: The inputs are read from memory
def arithmetic_intensity(flops, read, written, element_bytes):
    return flops / max(1, written * element_bytes)
