"""The detective: a kernel that is right and moves everything eight times."""

from __future__ import annotations

import torch

from autograder.drawing import tensor, vector_case
from autograder.exercise import (
    Arguments,
    Case,
    Exercise,
    Launch,
    Output,
    Outputs,
    Problem,
)
from autograder.exercises.transpose.shared import EXACT, THREADS, draw_values
from autograder.ideals import moves, once_through_shared

FIELDS = 8


def _problem(case: Case, generator: torch.Generator) -> Problem:
    n = case.sizes["n"]
    aos = draw_values(n * FIELDS, case.regime, generator).view(n, FIELDS)
    return Problem(
        {"aos": aos, "soa": None, "n": n},
        {"soa": Output((FIELDS, n), torch.float32)},
        Launch((max(1, -(-n // THREADS)),), (THREADS,)),
    )


def _reference(arguments: Arguments) -> Outputs:
    return {"soa": tensor(arguments, "aos").T.contiguous().double()}


AOS_TO_SOA = Exercise(
    id="aos_to_soa",
    title="The kernel that reads everything eight times",
    kind="detective",
    points=20,
    language="cuda",
    entry="kernel",
    name="aos_to_soa",
    source="autograder/exercises/transpose/aos_to_soa.cu",
    goal="Mend a kernel that is right and moves too much: from `n` particles of eight "
    "floats each to eight arrays of `n` floats.",
    requirements=(
        "Blocks of 256 threads, a thread for each particle; right for every `n`.",
        "On whole blocks loads and stores fill the sectors that they touch: four for "
        "32 floats.",
        "At most two wavefronts per request in shared memory, if you use it.",
    ),
    problem=_problem,
    reference=_reference,
    cases=(
        vector_case(512),
        *(vector_case(n) for n in (1009, 257, 255, 33, 1, 0)),
        vector_case(515, "special"),
    ),
    tolerance=EXACT,
    hints=(
        "Trace it, and find the line whose sectors per request are far from the "
        "ideal. How many bytes apart are two neighbouring lanes there?",
        "The 256 particles of a block are 2,048 floats in a row. Read them in the "
        "order in which they lie; shared memory can put them in another.",
        "In: for `k` = 0 … 7, float `j = 256 * k + threadIdx.x` of the block goes "
        "to `tile[j % 8][j / 8]`. Barrier. Out: `soa[field * n + first + "
        "threadIdx.x] = tile[field][threadIdx.x]`. Rows of 260 floats keep the "
        "banks apart.",
    ),
    onward="Which of the two layouts would you want, if a kernel read one field only?",
    counts=(*moves(), *once_through_shared(16 * 1024, times=2.05)),
    # The values were right before: what it moves is the whole exercise.
    shares={"correct": 0.0, "counts": 1.0, "speed": 0.0},
)
