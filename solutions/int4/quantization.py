"""Weights rounded to four bits in groups: codes, and what each group's are worth."""

from __future__ import annotations

from typing import NamedTuple

import torch

from kernelwright import cdiv

LEVELS = 16
_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class Quantized(NamedTuple):
    """A matrix as codes: ``weight[i, j] ≈ (codes[i, j] - zeros[i, g]) * scales[i, g]``.

    Args:
        codes: (rows, columns), uint8 from 0 to 15.
        scales: (rows, groups), of the weight's dtype.
        zeros: (rows, groups), uint8: the code that stands for 0.
        group_size: how many columns share a scale; g is j // group_size.
    """

    codes: torch.Tensor
    scales: torch.Tensor
    zeros: torch.Tensor
    group_size: int


def quantize(
    weight: torch.Tensor, group_size: int = 128, symmetric: bool = True
) -> Quantized:
    """Round a matrix to four bits, in groups of columns.

        symmetric    scale = max |w| / 7, zero = 8, codes 1 to 15
        asymmetric   scale = (max(w, 0) - min(w, 0)) / 15, zero = round(-min / scale)
        both         code = round(w / scale) + zero, rounded to even, from 0 to 15

    Args:
        weight: (rows, columns); fp16, bf16, fp32 or fp64.
        group_size: columns of a group; a row's last group may be smaller.
        symmetric: whether the codes lie around 8, or where the group's numbers do.

    Returns:
        The codes, with a scale and a zero for each group of each row.

    Raises:
        TypeError, ValueError: what does not fit, named; numbers that are not finite.

    Cost: weight read three times; a pass of its own for each operation of torch's.
    """
    _check(weight, group_size)
    rows, columns = weight.shape
    groups = cdiv(columns, group_size)
    wide = weight.detach().to(torch.promote_types(weight.dtype, torch.float32))
    if not bool(torch.isfinite(wide).all()):
        raise ValueError(
            "quantize: weight has NaN or infinity; no scale fits these. Look for them "
            "with torch.isfinite(weight)."
        )
    # Zeros behind the last column change no group's range: 0 is always within.
    whole = torch.nn.functional.pad(wide, (0, groups * group_size - columns))
    grouped = whole.view(rows, groups, group_size)
    if symmetric:
        scales = grouped.abs().amax(-1) / 7
        zeros = torch.full_like(scales, 8)
    else:
        low = grouped.amin(-1).clamp(max=0)
        high = grouped.amax(-1).clamp(min=0)
        scales = (high - low) / (LEVELS - 1)
        zeros = None
    # What is stored is what is divided by: the scale as the weight's dtype has it.
    stored = scales.to(weight.dtype)
    by = stored.to(wide.dtype)
    by = torch.where(by > 0, by, torch.ones_like(by))
    if zeros is None:
        zeros = torch.round(-low / by).clamp(0, LEVELS - 1)
    codes = torch.round(grouped / by.unsqueeze(-1)) + zeros.unsqueeze(-1)
    codes = codes.clamp(0, LEVELS - 1).to(torch.uint8)
    return Quantized(
        codes.view(rows, groups * group_size)[:, :columns].contiguous(),
        stored,
        zeros.to(torch.uint8),
        group_size,
    )


def dequantize(quantized: Quantized, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return the matrix that codes stand for: ``(codes - zeros) * scales``.

    Args:
        quantized: what ``quantize`` returned.
        dtype: of the result; the scales' when absent. Multiplied in fp32 at least, and
            rounded once.

    Returns:
        (rows, columns), contiguous.

    Cost: the codes read once; a pass of its own for each operation of torch's.
    """
    codes, scales, zeros, group_size = quantized
    columns = codes.shape[1]
    wide = torch.promote_types(scales.dtype, torch.float32)

    def spread(x: torch.Tensor) -> torch.Tensor:
        return x.to(wide).repeat_interleave(group_size, 1)[:, :columns]

    return ((codes.to(wide) - spread(zeros)) * spread(scales)).to(dtype or scales.dtype)


def _check(weight: torch.Tensor, group_size: int) -> None:
    if not isinstance(weight, torch.Tensor):
        raise TypeError(
            f"quantize: weight is {type(weight).__name__}; wanted a torch tensor."
        )
    if weight.dtype not in _DTYPES:
        raise TypeError(
            f"quantize: weight is {weight.dtype}; wanted float16, bfloat16, float32 or "
            "float64."
        )
    if weight.dim() != 2:
        raise ValueError(
            f"quantize: weight has shape {tuple(weight.shape)}; wanted (rows, columns)."
        )
    if not isinstance(group_size, int) or group_size < 1:
        raise ValueError(
            f"quantize: group_size is {group_size!r}; wanted a number of columns, 1 or "
            "more, such as 128."
        )
