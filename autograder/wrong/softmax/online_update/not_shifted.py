# expect: exp(values) is added as it is
def online_update(maximum: Tensor, total: Tensor, values: Tensor):
    """Take values (rows, columns) into maximum and total, both (rows,).

    total is the sum of exp(x - maximum) over all x seen so far; before
    the first of them, maximum is -inf and total 0.
    """
    new = torch.maximum(maximum, values.max(dim=1).values)
    base = new.masked_fill(new == -math.inf, 0.0)
    total = total * torch.exp(maximum - base) + torch.exp(values).sum(1)
    return new, total
