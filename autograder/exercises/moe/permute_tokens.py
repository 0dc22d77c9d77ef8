"""Tokens go to the rows of their experts, in their order: a block to each expert."""

from __future__ import annotations

import torch

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
    Exercise,
    Launch,
    Output,
    Outputs,
    Problem,
    Tolerance,
)
from autograder.exercises.moe.routed import draw_chosen, routed_case
from autograder.ideals import moves

_WARPS = 8


def _problem(case: Case, generator: torch.Generator) -> Problem:
    tokens, k, experts, packs = (
        case.sizes[name] for name in ("tokens", "k", "experts", "packs")
    )
    chosen = draw_chosen(case, generator, tokens, k).flatten()
    counts = torch.bincount(chosen.long(), minlength=experts)
    pairs = tokens * k
    return Problem(
        {
            "x": torch.randn(tokens, 4 * packs, generator=generator),
            "chosen": chosen,
            "offsets": counts.cumsum(0).int(),
            "rows": None,
            "out": None,
            "pairs": pairs,
            "k": k,
            "packs": packs,
        },
        {
            "rows": Output((pairs,), torch.int32),
            "out": Output((pairs, 4 * packs), torch.float32),
        },
        Launch((experts,), (32 * _WARPS,)),
    )


def _reference(arguments: Arguments) -> Outputs:
    chosen, k = tensor(arguments, "chosen"), int(arguments["k"])
    order = torch.sort(chosen, stable=True).indices
    rows = torch.empty_like(order)
    rows[order] = torch.arange(len(order))
    return {"rows": rows.int(), "out": tensor(arguments, "x").double()[order // k]}


PERMUTE_TOKENS = Exercise(
    id="permute_tokens",
    title="Tokens to their experts",
    kind="core",
    points=20,
    language="cuda",
    entry="kernel",
    name="permute_tokens",
    source="solutions/moe/permute_tokens.cu",
    goal="Copy each token's numbers to a row of each of its k experts, the tokens of "
    "an expert in their order, and write down which row each pair was given.",
    requirements=(
        "Block e, of 256 threads, serves expert e. Pair p belongs to token `p / k`, "
        "and its expert is `chosen[p]`.",
        "Expert e's rows end before row `offsets[e]`, and begin where those of expert "
        "`e - 1` end (at 0 for the first). There may be none.",
        "`rows[p]` is the row of pair p: of one expert's pairs, lower p come first. "
        "`out` is (pairs, packs), and row `rows[p]` holds `x`'s row `p / k`.",
        "`x` and `out` are copied in packs of 16 bytes, coalesced, each row by the "
        "threads of a block together; `packs` is any number.",
        "A warp reads 32 pairs' experts at a time. `pairs * packs` fits into an int.",
    ),
    problem=_problem,
    reference=_reference,
    cases=(
        routed_case(tokens=64, k=2, experts=4, packs=64),
        routed_case("skewed", tokens=67, k=3, experts=7, packs=9),
        routed_case("idle", tokens=41, k=2, experts=9, packs=33),
        routed_case("crowded", tokens=150, k=1, experts=5, packs=3),
        routed_case(tokens=5, k=4, experts=4, packs=300),
        routed_case(tokens=33, k=1, experts=1, packs=1),
        routed_case(tokens=1, k=1, experts=3, packs=5),
        routed_case(tokens=0, k=2, experts=3, packs=4),
    ),
    tolerance=Tolerance(factor=0.0),
    hints=(
        "`__ballot_sync` gives every lane one bit for each lane's pair: is it this "
        "expert's? A lane's row is the next free one plus the number of bits below its "
        "own.",
        "`__popc(all & ((1u << lane) - 1))` counts those bits. All eight warps have "
        "the same ballot, so all 256 threads can copy one pair's row together, bit "
        "after bit; but only one of the warps may write rows[pair].",
        "`for (; all != 0; all &= all - 1)` visits the bits from the lowest; "
        "`__ffs(all) - 1` is its place. There thread c, c + 256, ... copies out[row * "
        "packs + c] = x[token * packs + c]; then ++row.",
    ),
    onward="With 8 experts there are 8 blocks, and an H200 has 132 SMs. What does the "
    "chapter's permute do about it?",
    # Each token goes to two experts; four blocks of eight warps look at all pairs.
    # Who copies a row asks for more than who only looks for its place.
    counts=moves(
        {"x": 2, "chosen": 4 * _WARPS, "offsets": 4 * _WARPS}, width=16, busiest=5
    ),
    repeats=("chosen",),
)
