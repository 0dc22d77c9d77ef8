"""Rows sent to experts and gathered from them: the launches of ``permute.cu``.

What a kernel is told, and ``on_cpu.py`` does in torch's operations for the CPU. CPU
tensors run on the emulator here, thread by thread.
"""

from __future__ import annotations

from pathlib import Path

import torch

import kernelwright as kw
from solutions.moe.scan import scan_operator

_found = kw.cuda.kernels(Path(__file__).parent)
_WARPS, _FILLERS = 8, 16  # as in permute.cu
_PART = 2048  # pairs of a block: a multiple of 32 for each of its warps
_C_TYPES = {
    torch.float16: "__half, float",
    torch.bfloat16: "__nv_bfloat16, float",
    torch.float32: "float, float",
    torch.float64: "double, double",
}


def placed(
    chosen: torch.Tensor, experts: int, round: int, capacity: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Sort pairs by expert, in the order of tokens.

    Args:
        chosen: (tokens, k), int32, contiguous; what is no expert's number gets no row.
        experts: how many there are, one at least.
        round: what experts' rows begin at multiples of.
        capacity: the most rows of one expert; pairs that come later get none.

    Returns:
        Each pair's row, (tokens, k), or -1; where each expert's rows begin, and where
        they end, (experts); all int32.
    """
    pairs = chosen.numel()
    rows = torch.empty_like(chosen)
    begins, ends = chosen.new_empty(experts), chosen.new_empty(experts)
    parts = max(1, kw.cdiv(pairs, _PART))
    # One more: what is summed up before it is how many pairs there are.
    counts = chosen.new_zeros(experts * parts + 1)
    where = chosen.device.type
    _found("permute", "count", where)[parts, 32 * _WARPS, 4 * experts](
        chosen, counts, pairs, experts, _PART
    )
    starts = scan_operator(counts, True)
    _found("permute", "place", where)[parts, 32 * _WARPS, 4 * experts * (2 + _WARPS)](
        chosen, starts, rows, begins, ends, pairs, experts, _PART, round, capacity
    )
    return rows, begins, ends


def sent(
    x: torch.Tensor,
    rows: torch.Tensor,
    weights: torch.Tensor | None,
    begins: torch.Tensor | None,
    ends: torch.Tensor | None,
    round: int,
    height: int,
    *,
    whole: bool,
) -> torch.Tensor:
    """Copy each token's numbers to its rows, weighed; zeros in between.

    Args:
        x: (tokens, columns), contiguous.
        rows: (tokens, k), int32.
        weights: (tokens, k), or none.
        begins: (experts), int32; where they are absent, all of the result is filled
            with zeros first.
        ends: (experts), int32.
        round: what experts' rows begin at multiples of.
        height: rows of the result.
        whole: write zeros behind the last expert's rows too, up to ``height``.

    Returns:
        (height, columns).
    """
    (tokens, columns), k = x.shape, rows.shape[1]
    experts = 0 if begins is None else begins.shape[0]
    out = x.new_empty(height, columns) if experts else x.new_zeros(height, columns)
    if not out.numel():
        return out
    warps = tokens + experts * _FILLERS
    _kernel("send", x, columns)[kw.cdiv(warps, _WARPS), 32 * _WARPS](
        x, rows, weights, begins, ends, out, tokens, k, columns, experts, round,
        height if whole else 0,
    )  # fmt: skip
    return out


def gathered(
    y: torch.Tensor, rows: torch.Tensor, weights: torch.Tensor | None
) -> torch.Tensor:
    """Sum each token's rows, weighed: (tokens, columns)."""
    (tokens, k), columns = rows.shape, y.shape[1]
    out = y.new_empty(tokens, columns)
    if out.numel():
        _kernel("gather", y, columns)[kw.cdiv(tokens, _WARPS), 32 * _WARPS](
            y, rows, weights, out, tokens, k, columns, y.shape[0]
        )
    return out


def weighed(grad: torch.Tensor, y: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Multiply each token's gradient by each of its rows: (tokens, k)."""
    (tokens, k), columns = rows.shape, y.shape[1]
    wide = torch.promote_types(grad.dtype, torch.float32)
    out = grad.new_empty(tokens, k, dtype=wide)
    if out.numel():
        _kernel("weigh", grad, columns)[kw.cdiv(tokens, _WARPS), 32 * _WARPS](
            grad, y, rows, out, tokens, k, columns, y.shape[0]
        )
    return out


def swiglu(both: torch.Tensor) -> torch.Tensor:
    """Return silu of the first half of columns, times the second."""
    height, columns = both.shape[0], both.shape[1] // 2
    out = both.new_empty(height, columns)
    if out.numel():
        _kernel("swiglu", both, columns)[kw.cdiv(height, _WARPS), 32 * _WARPS](
            both, out, height, columns
        )
    return out


def swiglu_backward(
    both: torch.Tensor,
    slopes: torch.Tensor,
    rows: torch.Tensor,
    weights: torch.Tensor,
    begins: torch.Tensor,
    ends: torch.Tensor,
    round: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Go back through weights and swiglu, row by row.

    Args:
        both: (height, 2 columns): gates, and what they let through.
        slopes: (height, columns), of the hidden layer before it is weighed.
        rows: (tokens, k), int32.
        weights: (tokens, k).
        begins: (experts), int32.
        ends: (experts), int32.
        round: what experts' rows begin at multiples of.

    Returns:
        both's gradient; the hidden layer, weighed; the weights' gradient, (tokens, k).
    """
    columns, pairs, experts = slopes.shape[1], rows.numel(), begins.shape[0]
    of_both, hidden = torch.empty_like(both), torch.empty_like(slopes)
    of_weights = torch.empty_like(weights)
    warps = pairs + experts * _FILLERS
    _kernel("swiglu_backward", both, columns)[kw.cdiv(warps, _WARPS), 32 * _WARPS](
        both, slopes, rows, weights, begins, ends, of_both, hidden, of_weights, pairs,
        columns, experts, round,
    )  # fmt: skip
    return of_both, hidden, of_weights


def _kernel(name: str, x: torch.Tensor, columns: int) -> kw.cuda.Kernel:
    width = 16 // x.element_size()
    width = width if columns % width == 0 else 1
    return _found("permute", f"{name}<{_C_TYPES[x.dtype]}, {width}>", x.device.type)
