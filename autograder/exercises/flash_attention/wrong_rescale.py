"""The detective: a merge of lanes that passed its test."""

from __future__ import annotations

import torch

from autograder.exercise import Case, Exercise, Launch, Problem
from autograder.exercises.flash_attention.shared import (
    TOLERANCE,
    case_of,
    kernel_problem,
    reference,
)
from autograder.ideals import moves


def _problem(case: Case, generator: torch.Generator) -> Problem:
    problem = kernel_problem(case, generator)
    arguments = {n: x for n, x in problem.arguments.items() if n != "q_len"}
    return Problem(arguments, problem.outputs, Launch((case.sizes["q_len"],), (32,)))


WRONG_RESCALE = Exercise(
    id="wrong_rescale",
    title="The merge that passed its test",
    kind="detective",
    points=20,
    language="cuda",
    entry="kernel",
    name="wrong_rescale",
    source="autograder/exercises/flash_attention/wrong_rescale.cu",
    goal="Mend a kernel that splits the keys of a query over a warp's lanes, and "
    "merges what they found.",
    requirements=(
        "Blocks of 32 threads, a query each; right for every kv_len of 1 and more, and "
        "for scores however high or low.",
        "Lanes that have no key at all take part in the merge, with weight 0.",
    ),
    problem=_problem,
    reference=reference,
    cases=(
        case_of(6, 64),
        case_of(3, 77),
        case_of(5, 20),
        case_of(1, 1),
        case_of(4, 96, "rising"),
        case_of(4, 64, "large"),
        case_of(3, 21, "low"),
    ),
    tolerance=TOLERANCE,
    hints=(
        "Give all keys the same score, and the kernel is right. Give one key a higher "
        "score. Which lanes' contributions are then multiplied by what?",
        "Each lane's sums are relative to its own maximum. `mend` takes them to the "
        "common one, and it is a lane's own factor: what a neighbour sends needs the "
        "neighbour's.",
        "Mend first, exchange then: mine = weight * mend, and weight becomes mine plus "
        "the other lane's mine, by __shfl_xor_sync; the same for each sum[d].",
    ),
    onward="The same merge joins blocks that share a long row of keys: chapter 10's "
    "decode.",
    counts=(
        # A warp has a query, a lane a key: it asks for the query with each.
        moves({"q": 64, "k": 6, "v": 6}, writes=None, asked=True)
    ),
)
