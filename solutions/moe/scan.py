"""Sums of all numbers up to each: one pass over memory."""

from __future__ import annotations

from pathlib import Path

import torch

import kernelwright as kw
from kernelwright.operators import operator, recorded

_kernel = kw.cuda.kernels(Path(__file__).parent)
WARPS, ROUNDS = 8, 4
TILE = 32 * WARPS * ROUNDS * 4
_EMULATED = 2**20  # numbers; about a second on two cores


@recorded
def prefix_sum(x: torch.Tensor, exclusive: bool = False) -> torch.Tensor:
    """Sum up to each number: ``out[i] = x[0] + … + x[i]``, without x[i] if exclusive.

    Args:
        x: (n), int32; sums wrap, as int32's do.
        exclusive: whether each number is left out of its own sum.

    Returns:
        (n), int32.

    Raises:
        TypeError, ValueError: what does not fit, named.

    Cost: 8 n bytes.
    """
    if not isinstance(x, torch.Tensor) or x.dtype != torch.int32 or x.dim() != 1:
        got = (
            f"{x.dtype} of shape {tuple(x.shape)}"
            if isinstance(x, torch.Tensor)
            else type(x).__name__
        )
        raise TypeError(f"prefix_sum: x is {got}; wanted int32, (n).")
    found: torch.Tensor = scan_operator(x, exclusive)
    return found


@operator("prefix_sum")
def scan_operator(x: torch.Tensor, exclusive: bool) -> torch.Tensor:
    """Scan a vector."""
    x = x.contiguous()
    x = x if x.data_ptr() % 16 == 0 else x.clone()
    n = x.numel()
    if x.device.type != "cuda" and n > _EMULATED:
        sums = x.cumsum(0).to(torch.int32)
        return sums - x if exclusive else sums
    out = torch.empty_like(x)
    if n:
        tiles = kw.cdiv(n, TILE)
        # What each tile has said, and how many tiles are taken.
        said = torch.zeros(tiles + 1, dtype=torch.int64, device=x.device)
        _kernel("scan", f"scan<{WARPS}, {ROUNDS}>", x.device.type)[tiles, 32 * WARPS](
            x, out, said, said[tiles:], n, int(exclusive)
        )
    return out


scan_operator.register_fake(lambda x, exclusive: torch.empty_like(x))
