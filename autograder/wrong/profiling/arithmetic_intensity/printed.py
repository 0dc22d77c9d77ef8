# expect: returned None; wanted a number
def arithmetic_intensity(flops, read, written, element_bytes):
    print(flops / ((read + written) * element_bytes))
