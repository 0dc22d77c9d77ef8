"""Chapter 10's ladder: causal attention against cuDNN."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
    Exercise,
    NearMiss,
    Outputs,
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
    nan_where,
    seen_by_all,
    seen_causally,
    tolerance,
    walk,
    walk_misses,
)
from autograder.exercises._flash_attention_triton_absorb import absorb_slips
from autograder.exercises._flash_attention_triton_lines import (
    CAUSAL,
    Line,
    hidden,
    slip,
)
from autograder.totals import moves

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


_TO_BASE_2 = 1 / math.log(2)
_AHEAD = (
    "In the tiles on the diagonal a query sees keys after itself: there the mask cols "
    "<= rows must cut."
)


def _seen_within(tile: int, *, tail: bool) -> Line:
    """Let all of the tile on the diagonal be seen, and what lies past the end."""
    return lambda t: (
        (t.cols[None, :] < (t.rows[:, None] // tile + 1) * tile)
        & ((t.cols[None, :] < t.n) | tail)
    )


def _in_the_last(tile: int) -> Line:
    return lambda t: (
        (t.cols[None, :] >= t.rows[:, None] // tile * tile)
        & (t.cols[None, :] <= t.rows[:, None])
    )


def _of_the_first(name: str) -> Line:
    return lambda t: t.at(name, t.cols)[:1, :1].expand(*t.q.shape[:2], -1, -1)


def _own_key_hidden(arguments: Arguments) -> Outputs:
    out = walk(arguments, lambda a: seen_causally(a).tril(-1))["out"]
    dead = torch.arange(out.shape[2], device=out.device) == 0
    return {"out": nan_where(out, dead)}


_FAST_SLIPS = (
    *(
        m
        for m in absorb_slips(CAUSAL)
        if "tl.where(seen" not in m.message and "2^x" not in m.message
    ),
    *(
        slip(
            f"the diagonal tile of {tile} seen{', and the tail' if tail else ''}",
            _AHEAD,
            CAUSAL,
            firsts=lambda t: range(0, -(-t.n // TILE) * TILE, TILE),
            seen=_seen_within(tile, tail=tail),
        )
        for tile in (64, 128)
        for tail in (False, True)
    ),
    slip(
        "not causal, and the tail",
        "This is full attention, and the zeros behind the last key are seen too: the "
        "mask cols <= rows hides both.",
        seen=lambda t: t.rows[:, None] >= 0,
    ),
    *(
        slip(
            f"the last tile of {tile} alone",
            "The tiles before the diagonal are missing: what the first walk absorbed "
            "is what the second goes on from.",
            CAUSAL,
            seen=_in_the_last(tile),
            p=lambda t: torch.exp(t.s - t.new).nan_to_num(0.0),
            shrink=lambda t: torch.exp(t.most - t.new).nan_to_num(0.0),
        )
        for tile in (64, 128)
    ),
    NearMiss(
        "own key hidden",
        _own_key_hidden,
        "A query does not see its own key: the comparison is cols <= rows. The first "
        "query saw nothing, so it is NaN.",
    ),
    slip(
        "p of powers of e",
        "p is exp of logits that were multiplied by log2(e): exp2, as for shrink.",
        CAUSAL,
        p=lambda t: torch.exp((t.s - t.new) * _TO_BASE_2),
    ),
    slip(
        "shrink of powers of e",
        "shrink is exp of maxima that were multiplied by log2(e): exp2, as for p.",
        CAUSAL,
        shrink=lambda t: torch.exp((t.most - t.new) * _TO_BASE_2),
    ),
    slip(
        "ln 2 for log2(e)",
        "The logits were multiplied by ln 2: e^x is 2^(x log2(e)), and log2(e) = 1 / "
        "ln 2 = 1.4427.",
        CAUSAL,
        s=lambda t: hidden(t.q @ t.k.mT * t.scale * math.log(2) ** 2, t.seen),
    ),
    slip(
        "keys and values exchanged",
        "Keys and values have changed places.",
        CAUSAL,
        k=lambda t: t.at("v", t.cols),
        v=lambda t: t.at("k", t.cols),
    ),
    *(
        slip(
            f"{said} of the first head",
            f"Every head reads the {said} of the first.",
            CAUSAL,
            **{name: _of_the_first(name) for name in names},
        )
        for said, names in (("keys", "k"), ("values", "v"), ("keys and values", "kv"))
    ),
    slip(
        "not divided",
        "The sums are not divided by total: out = acc / total[:, None].",
        CAUSAL,
        total=lambda t: torch.ones_like(t.total),
    ),
)
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
        "The kernel's tiles, warps and stages are yours to choose. `triton.autotune` "
        "has nothing to time where there is no GPU, and fails: write down what it "
        "found.",
    ),
    problem=forward_problem,
    reference=lambda a: {"out": exact(a, seen_causally)},
    cases=(
        attention_case(256, 64),
        # One tile, whatever its size: mistakes that depend on tiles look alike here.
        attention_case(60, 128, heads=2, batch=2),
        attention_case(200, 32, regime="growing"),
        attention_case(1, 64),
        attention_case(130, 16, regime="large"),
        attention_case(70, 16, regime="low"),
        attention_case(150, 16, regime="even"),
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
        *_FAST_SLIPS,
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
        # out alone is written: what is of size n * n has no place in memory.
        moves(reads=None)
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
