"""Which row of which expert a token's numbers go to, and the way back."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

import kernelwright as kw
from kernelwright.operators import operator
from solutions.moe.scan import scan_operator

_HERE = Path(__file__).parent
_WARPS = 8
_PART = 2048  # pairs of a block: a multiple of 32 for each of its warps
C_TYPES = {
    torch.float16: ("__half", "float"),
    torch.bfloat16: ("__nv_bfloat16", "float"),
    torch.float32: ("float", "float"),
    torch.float64: ("double", "double"),
}


class Placed(NamedTuple):
    """Where the tokens of a batch go.

    Args:
        rows: (tokens, k), int32: the row of each pair; -1 for one that is dropped.
        begins: (experts), int32: where each expert's rows begin.
        ends: (experts), int32: where they end, padding left out.
        height: how many rows there are room for.
    """

    rows: torch.Tensor
    begins: torch.Tensor
    ends: torch.Tensor
    height: int


@operator("place_tokens")
def place_operator(
    chosen: torch.Tensor, experts: int, round: int, capacity: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Sort pairs by expert, in the order of tokens."""
    chosen = chosen.to(torch.int32).contiguous()
    pairs = chosen.numel()
    rows = torch.empty_like(chosen)
    begins, ends = (chosen.new_empty(experts) for _ in range(2))
    parts = max(1, kw.cdiv(pairs, _PART))
    # One more: what is summed up before it is how many pairs there are.
    counts = chosen.new_zeros(experts * parts + 1)
    kernel = _kernels(chosen.device.type)
    kernel["count"][parts, 32 * _WARPS, 4 * experts](
        chosen, counts, pairs, experts, _PART
    )
    starts = scan_operator(counts, True)
    kernel["place"][parts, 32 * _WARPS, 4 * experts * (2 + _WARPS)](
        chosen, starts, rows, begins, ends, pairs, experts, _PART, round, capacity
    )
    return rows, begins, ends


@cache
def _kernels(device_type: str) -> Any:
    backend: kw.cuda.Backend = "gpu" if device_type == "cuda" else "emulator"
    text = (_HERE / "permute.cu").read_text(encoding="utf-8")
    return kw.cuda.compile(text, name="permute.cu", backend=backend)
