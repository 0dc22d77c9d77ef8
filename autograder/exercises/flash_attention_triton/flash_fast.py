"""The ladder: causal attention against cuDNN."""

from __future__ import annotations

import math

import torch

from autograder.drawing import tensor
from autograder.exercise import Arguments, Case, Count, Exercise, Speed
from autograder.exercises.flash_attention_triton.shared import (
    PRELUDE,
    attention_case,
    causal,
    forward_problem,
    made_in_triton,
    seen_causally,
    tolerance,
)
from autograder.ideals import IN_16_BITS, moves


def _peer(arguments: Arguments) -> object:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q, k, v = (tensor(arguments, name) for name in "qkv")
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def _pairs(case: Case) -> int:
    """Return how many pairs of query and key there are under a causal mask."""
    n = case.sizes["n"]
    return case.sizes["heads"] * n * (n + 1) // 2


FLASH_FAST = Exercise(
    id="flash_fast",
    title="As fast as you can",
    kind="ladder",
    points=25,
    language="python",
    entry="function",
    name="flash_fast",
    source="solutions/flash_attention_triton/fast.py",
    goal="Write causal attention forward as close to cuDNN's as you can come.",
    requirements=(
        "`head_dim` is 16 to 128, a power of two; `n` is any length.",
        "A tile of keys that none of a program's queries sees is not loaded. Operands "
        "of products are 16 bits, sums fp32.",
        "The cell is graded by itself: `nothing` and `absorb` are not there.",
        "The kernel's tiles, warps and stages are yours to choose. `triton.autotune` "
        "has nothing to time where there is no GPU, and fails: write down what it "
        "found.",
    ),
    problem=forward_problem,
    reference=causal,
    cases=(
        attention_case(256, 64),
        # One tile, whatever its size: mistakes that depend on tiles look alike here.
        attention_case(60, 128, heads=2, batch=2),
        attention_case(200, 32, heads=2, regime="growing"),
        attention_case(1, 64),
        attention_case(130, 16, regime="large"),
        attention_case(70, 16, regime="low"),
        attention_case(150, 16, regime="even"),
        # Counted: so long that programs which skip nothing are many, in tiles of any
        # size that serves.
        attention_case(1024, 16),
    ),
    tolerance=tolerance(seen_causally),
    hints=(
        "Most tiles need no mask at all: walk those first, then the diagonal.",
        "exp2 is one instruction, exp is two: multiply scale by log2(e) once, outside. "
        "Let acc be tl.dot's third operand.",
        "Begin with 128 queries, 128 keys (64 where head_dim is 64), num_warps=8, "
        "num_stages=3, and the longest rows first: program p of the grid takes block "
        "last - p. Then sweep.",
    ),
    onward="The chapter's last rung: TMA, wgmma and warps with roles, in Gluon.",
    counted=7,
    counts=(
        # out alone is written: what is of size n * n has no place in memory.
        *moves(reads=None),
        # The last tile of keys is the last queries' alone: of one program, or of
        # several whose tiles of queries are shorter.
        Count("readers", "global", "load", ideal=1, times=4),
        IN_16_BITS,
    ),
    structure=(made_in_triton("tl.dot"),),
    prelude=PRELUDE,
    speed=Speed(
        peer="cuDNN",
        run_peer=_peer,
        case=attention_case(16384, 128, heads=16),
        bytes_moved=lambda case: 8 * math.prod(case.sizes.values()),
        flops=lambda case: 4 * _pairs(case) * case.sizes["d"],
        unit="half",
        bands={"bronze": 0.35, "silver": 0.55, "gold": 0.72},
        families={
            # No wgmma there: what cuDNN does is what mma.sync can.
            "ampere": {"bronze": 0.45, "silver": 0.65, "gold": 0.80},
            "ada": {"bronze": 0.45, "silver": 0.65, "gold": 0.80},
        },
    ),
)
