# expect: FLOP per element
def arithmetic_intensity(flops, read, written, element_bytes):
    return flops / (read + written)
