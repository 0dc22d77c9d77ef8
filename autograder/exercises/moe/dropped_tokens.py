"""The detective: rows under a capacity, counted anew for every slot."""

from __future__ import annotations

import torch

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
    Count,
    Exercise,
    Launch,
    Output,
    Outputs,
    Problem,
    Tolerance,
)
from autograder.exercises.moe.routed import draw_chosen, routed_case

_WARPS = 4


def _problem(case: Case, generator: torch.Generator) -> Problem:
    tokens, k, experts, capacity = (
        case.sizes[name] for name in ("tokens", "k", "experts", "capacity")
    )
    return Problem(
        {
            "chosen": draw_chosen(case, generator, tokens, k),
            "rows": None,
            "tokens": tokens,
            "k": k,
            "experts": experts,
            "capacity": capacity,
        },
        {"rows": Output((tokens, k), torch.int32)},
        Launch((-(-experts // _WARPS),), (32 * _WARPS,)),
    )


def _reference(arguments: Arguments) -> Outputs:
    chosen = tensor(arguments, "chosen").long()
    capacity = int(arguments["capacity"])
    # All first choices, then all second ones.
    asked = chosen.T.flatten()
    same = torch.nn.functional.one_hot(asked, int(arguments["experts"]))
    ranks = same.cumsum(0).gather(1, asked[:, None])[:, 0] - 1
    rows = torch.where(ranks < capacity, asked * capacity + ranks, -1)
    return {"rows": rows.view(chosen.T.shape).T.int()}


DROPPED_TOKENS = Exercise(
    id="dropped_tokens",
    title="Two tokens in one row",
    kind="detective",
    points=20,
    language="cuda",
    entry="kernel",
    name="dropped_tokens",
    source="autograder/exercises/moe/dropped_tokens.cu",
    goal="Mend the kernel that gives each pair its row under a capacity: the layer "
    "trains, no token seems to be missing, and it is worse than the one without a "
    "capacity even where nothing is dropped.",
    requirements=(
        "Expert e has `capacity` rows, from `e * capacity` on, and gives them out in "
        "order: first to the tokens whose first choice it is (`chosen[token * k]`), by "
        "token; then to those whose second choice it is; and so on.",
        "`rows[token * k + j]` is the row of the token's j-th choice, or -1 where the "
        "expert has none left. No row is given twice.",
        "Blocks of 128 threads: a warp to each expert, and perhaps some to none. Any "
        "number of tokens, 0 included; the k experts of a token differ.",
        "A warp reads each pair once, 32 at a time.",
    ),
    problem=_problem,
    reference=_reference,
    cases=(
        routed_case(tokens=128, k=2, experts=8, capacity=40),
        routed_case("skewed", tokens=97, k=3, experts=6, capacity=33),
        routed_case(tokens=50, k=2, experts=5, capacity=100),
        routed_case("crowded", tokens=70, k=2, experts=9, capacity=35),
        routed_case("idle", tokens=63, k=1, experts=7, capacity=20),
        routed_case(tokens=33, k=4, experts=4, capacity=40),
        routed_case(tokens=31, k=1, experts=1, capacity=31),
        routed_case(tokens=65, k=2, experts=3, capacity=1),
        routed_case(tokens=1, k=1, experts=2, capacity=1),
        routed_case(tokens=0, k=2, experts=3, capacity=4),
    ),
    tolerance=Tolerance(factor=0.0),
    hints=(
        "Work it out for 4 tokens, 2 experts, k = 2 and a capacity of 8, so that "
        "nothing can be dropped, and write down the rows. Which row is given twice?",
        "Two faults. For whom does `taken` count: for an expert, or for an expert in "
        "one slot? And which ranks does a capacity of 8 leave room for?",
        "Let `int taken = 0;` stand before the loop over j, so that second choices go "
        "on where first choices ended. Ranks are 0 to capacity - 1: `rank < capacity`; "
        "row e * capacity + capacity is the next expert's first.",
    ),
    onward="Write the assertion that finds both faults: one line, no expected rows.",
    counts=(
        # Each expert's warp looks at all pairs. A second look at some is no waste yet.
        Count("bytes", "global", "load", passes={"chosen": 8}, times=1.6),
        Count("requests", "global", "load", passes={"chosen": 8}, times=1.9),
        Count("bytes", "global", "store"),
        Count("writers", "global", "store", ideal=1, times=1),
    ),
    repeats=("chosen",),
)
