"""A matrix rounded to four bits in groups of columns, by PyTorch's operations."""

from __future__ import annotations

import torch


# [exercise:quantize_groups]
def quantize_groups(weight, group_size):
    """Round (rows, columns) of fp32 to codes, scales and zeros.

    weight[i, j] is about (codes[i, j] - zeros[i, g]) * scales[i, g]
    with g = j // group_size; a row's last group may be smaller.
    """
    # [hole]
    rows, columns = weight.shape
    groups = -(-columns // group_size)
    # Zeros behind the last column change no range: 0 is in each.
    more = groups * group_size - columns
    padded = torch.nn.functional.pad(weight, (0, more))
    grouped = padded.reshape(rows, groups, group_size)
    low = grouped.amin(dim=2).clamp(max=0)
    high = grouped.amax(dim=2).clamp(min=0)
    scales = (high - low) / 15
    scales = torch.where(scales > 0, scales, 1.0)
    zeros = torch.round(-low / scales)
    codes = torch.round(grouped / scales[..., None]) + zeros[..., None]
    codes = codes.clamp(0, 15).to(torch.uint8)
    codes = codes.reshape(rows, groups * group_size)[:, :columns]
    return codes, scales, zeros.to(torch.uint8)
    # [/hole]


# [/exercise]
