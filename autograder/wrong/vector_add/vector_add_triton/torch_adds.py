# expect: no Triton kernel made them
def vector_add_triton(x, y):
    return x + y
