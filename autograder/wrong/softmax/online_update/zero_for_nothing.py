# expect: comes back as 0
def online_update(maximum: Tensor, total: Tensor, values: Tensor):
    """Take values (rows, columns) into maximum and total, both (rows,).

    total is the sum of exp(x - maximum) over all x seen so far; before
    the first of them, maximum is -inf and total 0.
    """
    higher = torch.maximum(maximum, values.amax(dim=1))
    # Where all is -inf so far, -inf - -inf would be NaN.
    base = torch.where(higher == -math.inf, 0.0, higher)
    mended = total * torch.exp(maximum - base)
    total = mended + torch.exp(values - base[:, None]).sum(dim=1)
    return base, total
