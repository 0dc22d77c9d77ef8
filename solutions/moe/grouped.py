"""Which kernel multiplies ragged experts: on Hopper, on other GPUs, on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch
import triton

import kernelwright as kw
from solutions.moe import grouped_triton

try:  # Gluon is an experimental part of Triton: it may be absent, or have moved
    from solutions.moe import hopper_grouped, hopper_grouped_weights
except ImportError:  # pragma: no cover
    hopper_grouped = hopper_grouped_weights = None  # type: ignore[assignment]

_kernel = kw.cuda.kernels(Path(__file__).parent)
TALL = grouped_triton.TALL
HALVES = (torch.float16, torch.bfloat16)


class Segments(NamedTuple):
    """Where each expert's rows are.

    Args:
        begins: (experts), int32: each expert's first row.
        ends: (experts), int32: where its rows end.
        round: what they begin at multiples of, with zeros in between.
    """

    begins: torch.Tensor
    ends: torch.Tensor
    round: int


def tiles_of(
    segments: Segments, height: int, others_too: bool = False
) -> torch.Tensor | None:
    """List the tiles of a product; None on the CPU, where none is needed."""
    on_gpu = segments.begins.device.type == "cuda"
    return listed(segments, height, others_too) if on_gpu else None


def listed(segments: Segments, height: int, others_too: bool = False) -> torch.Tensor:
    """List the tiles of a product.

    Args:
        segments: of which experts.
        height: rows that there are.
        others_too: whether rows of no expert get tiles, in which zeros will stand.

    Returns:
        (1 + most, 4), int32: how many; then the expert, first row and end of each.
    """
    begins, ends, round = segments
    experts = begins.shape[0]
    most = triton.cdiv(height, TALL) + experts + 1
    tiles = torch.empty(1 + most, 4, dtype=torch.int32, device=begins.device)
    _kernel("tiles", "list_tiles", begins.device.type)[experts + 1, 32](
        begins, ends, tiles, experts, height, round, int(others_too)
    )
    return tiles


def multiplied(
    x: torch.Tensor,
    weights: torch.Tensor,
    segments: Segments,
    tiles: torch.Tensor | None,
) -> torch.Tensor:
    """Multiply each expert's rows by its matrix.

    Args:
        x: (height, inner), contiguous.
        weights: (experts, inner, columns).
        segments: whose rows are where.
        tiles: what ``tiles_of`` returned.

    Returns:
        (height, columns); on the GPU only the rows that are tiles' are written.
    """
    if tiles is None or x.dtype == torch.float64:
        return _one_by_one(x, weights, segments)
    if hopper_grouped is not None and hopper_grouped.refuses(x, weights) is None:
        return hopper_grouped.grouped(x, weights, tiles)[0]
    return grouped_triton.grouped(x, weights, tiles)


def gated(
    x: torch.Tensor,
    weights: torch.Tensor,
    tiles: torch.Tensor | None,
    *,
    keep: bool,
) -> tuple[torch.Tensor, torch.Tensor | None] | None:
    """Return ``silu(x gate) * (x up)`` at once, and both if kept; None if it cannot."""
    if tiles is None or hopper_grouped is None:
        return None
    lies_right = weights.stride(1) == 1 and weights.shape[2] % 16 == 0
    if not lies_right or hopper_grouped.refuses(x, weights) is not None:
        return None
    return hopper_grouped.grouped(x, weights, tiles, gated=True, keep=keep)


def weights_gradient(
    a: torch.Tensor, b: torch.Tensor, segments: Segments
) -> torch.Tensor:
    """Return ``aᵀ b`` of each expert's rows.

    Args:
        a: (height, m), contiguous.
        b: (height, n), contiguous.
        segments: whose rows are where.

    Returns:
        (experts, m, n); zeros for an expert without rows.
    """
    begins, ends, round = segments
    if a.device.type != "cuda" or a.dtype == torch.float64:
        out = a.new_zeros(begins.shape[0], a.shape[1], b.shape[1])
        for e, rows in _rows_of(segments):
            out[e] = a[rows].mT @ b[rows]
        return out
    if round == TALL and wants_gaps(a, b):
        return hopper_grouped_weights.weights_gradient(a, b, begins, ends)
    return grouped_triton.weights_gradient(a, b, begins, ends)


def wants_gaps(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Say whether the weights' gradient is faster with each expert's rows apart.

    Args:
        a: (height, m).
        b: (height, n).
    """
    return not (
        hopper_grouped is None or hopper_grouped_weights.refuses(a, b) is not None
    )


def _one_by_one(
    x: torch.Tensor, weights: torch.Tensor, segments: Segments
) -> torch.Tensor:
    out = x.new_zeros(x.shape[0], weights.shape[2])
    for e, rows in _rows_of(segments):
        out[rows] = x[rows] @ weights[e]
    return out


def _rows_of(segments: Segments) -> list[tuple[int, slice]]:
    """Say which rows are each expert's, of those that have some; the host waits."""
    begins, ends = segments.begins.tolist(), segments.ends.tolist()
    places = [
        (e, slice(b, end)) for e, (b, end) in enumerate(zip(begins, ends, strict=True))
    ]
    return [(e, rows) for e, rows in places if rows.stop > rows.start]
