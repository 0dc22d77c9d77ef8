"""Chapter 10's ladder: causal attention against cuDNN."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
    Count,
    Exercise,
    NearMiss,
    Speed,
)
from autograder.exercises._flash_attention_triton import (
    IN_TRITON,
    PRELUDE,
    STEM,
    TILE,
    attention_case,
    exact,
    forward_problem,
    seen_by_all,
    seen_causally,
    tolerance,
    walk,
    walk_misses,
)

_TILE_BYTES = TILE * 64 * 2

# --- flash_fast (ladder) ----------------------------------------------------------

_TIMED = attention_case(16384, 128, heads=16)


def _peer(arguments: Arguments) -> object:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q, k, v = (tensor(arguments, name) for name in "qkv")
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def _pairs(case: Case) -> int:
    """Return how many pairs of query and key there are under a causal mask."""
    n = case.sizes["n"]
    return case.sizes["heads"] * n * (n + 1) // 2


def _fast_hidden(generator: torch.Generator) -> Iterator[Case]:
    n = int(torch.randint(129, 250, (), generator=generator))
    yield attention_case(n, 64, regime="growing")
    yield attention_case(n // 3, 128, heads=2)


FLASH_FAST = Exercise(
    id="flash_fast",
    stem=STEM,
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
        "The kernel's tiles, warps and stages are yours to choose.",
    ),
    problem=forward_problem,
    reference=lambda a: {"out": exact(a, seen_causally)},
    cases=(
        attention_case(256, 64),
        attention_case(100, 128, heads=2),
        attention_case(200, 32, regime="growing"),
        attention_case(1, 64),
        attention_case(130, 16, regime="large"),
    ),
    hidden=_fast_hidden,
    tolerance=tolerance(seen_causally),
    near_misses=(
        *walk_misses(seen_causally),
        NearMiss(
            "not causal",
            lambda a: walk(a, seen_by_all),
            "This is full attention: query i also sees keys after itself.",
        ),
        NearMiss(
            "powers of e of logits for 2",
            lambda a: walk(
                {**a, "q": tensor(a, "q").float() / math.log(2)}, seen_causally
            ),
            "exp is taken of logits that were multiplied by log2(e): that factor "
            "belongs to exp2.",
        ),
        NearMiss(
            "powers of two of natural logits",
            lambda a: walk(
                {**a, "q": tensor(a, "q").float() * math.log(2)}, seen_causally
            ),
            "exp2 is taken of logits that were not multiplied by log2(e): fold it into "
            "the scale.",
        ),
    ),
    hints=(
        "Most tiles need no mask at all: walk those first, then the diagonal.",
        "exp2 is one instruction, exp is two: multiply scale by log2(e) once, outside. "
        "Let acc be tl.dot's third operand.",
        "Begin with 128 queries, 128 keys (64 where head_dim is 64), num_warps=8, "
        "num_stages=3, and the longest rows first: program p of the grid takes block "
        "last - p. Then sweep.",
    ),
    onward="The chapter's last rung: TMA, wgmma and warps with roles, in Gluon.",
    # out alone is written: what is of size n * n has no place in memory.
    counts=(
        Count(
            "bytes", "global", "store", at_most=1.05 * 4 * _TILE_BYTES,
            ideal=4 * _TILE_BYTES,
        ),
    ),
    structure=(IN_TRITON,),
    prelude=PRELUDE,
    speed=Speed(
        peer="cuDNN",
        run_peer=_peer,
        case=_TIMED,
        bytes_moved=lambda case: (
            4 * case.sizes["heads"] * case.sizes["n"] * case.sizes["d"] * 2
        ),
        flops=lambda case: 4 * _pairs(case) * case.sizes["d"],
        unit="half",
        bands={"bronze": 0.35, "silver": 0.55, "gold": 0.72},
        families={
            # No wgmma there: what cuDNN does is what mma.sync can.
            "ampere": {"bronze": 0.45, "silver": 0.65, "gold": 0.80},
            "ada": {"bronze": 0.45, "silver": 0.65, "gold": 0.80},
        },
    ),
)  # fmt: skip
