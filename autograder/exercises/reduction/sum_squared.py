"""Squares added up along each row of a matrix, a block a row."""

from __future__ import annotations

import torch

from autograder.exercise import (
    Case,
    Exercise,
    Launch,
    Output,
    Problem,
    Speed,
    Structure,
)
from autograder.exercises.reduction.shared import (
    SHARES,
    THREADS,
    draw_matrix,
    matrix_case,
    of_matrix,
    tolerance_along,
)
from autograder.ideals import barriers, moves, shared


def _problem(case: Case, generator: torch.Generator) -> Problem:
    x = draw_matrix(case, generator)
    rows, columns = x.shape
    return Problem(
        {"x": x, "out": None, "columns": columns},
        {"out": Output((rows,), torch.float32)},
        Launch((rows,), (THREADS,)),
    )


SUM_SQUARED = Exercise(
    id="sum_squared",
    title="Squares along a row",
    kind="core",
    points=20,
    language="cuda",
    entry="kernel",
    name="sum_squared",
    source="solutions/reduction/rows.cu",
    goal="Add the squares of each row of a matrix up, a block a row.",
    requirements=(
        "A block of 256 threads for each row; `out[blockIdx.x]` is the sum of the "
        "row's squares, 0 for rows of no columns.",
        "Right for any number of columns.",
        "Warps add by shuffles; at most two barriers, no atomics; loads coalesced.",
    ),
    problem=_problem,
    reference=of_matrix(lambda x: x.square().sum(1)),
    cases=(
        matrix_case(4, 1024),
        matrix_case(2, 2500),
        matrix_case(5, 257),
        matrix_case(7, 33),
        matrix_case(4, 31),
        matrix_case(9, 1),
        matrix_case(2, 0),
        matrix_case(4, 500, "shifted"),
        matrix_case(6, 300, "special"),
    ),
    # Squares have one sign; a square itself errs by eps/2, and the factor has room.
    tolerance=tolerance_along("columns", lambda x: x.square().sum(1)),
    hints=(
        "Three sums, one inside the other: a thread over its columns, a warp over its "
        "lanes, a block over its warps. You have written the second.",
        "Thread t takes columns t, t + 256, …, so that a warp reads neighbours. Lane 0 "
        "of each warp leaves its sum in part[threadIdx.x / 32]; after a barrier the "
        "first warp adds these eight by shuffles. For speed: eight columns a round, "
        "all loaded before the first is added, as in rung 4.",
        "After the barrier: if (threadIdx.x < 32) { sum = threadIdx.x < 8 ? "
        "part[threadIdx.x] : 0.0f;  three shuffles, offsets 4, 2, 1;  thread 0 writes "
        "out[blockIdx.x]. }",
    ),
    onward="Rows of 64 columns keep three quarters of the block idle. How would you "
    "cut the block?",
    counts=(
        *moves(),
        # Eight sums a block, which one thread reads, or each warp at once.
        *shared(32, 32),
        barriers(1, 2),
    ),
    structure=(
        Structure(
            holds=("SHFL",),
            lacks=("RED", "ATOM"),
            message="The values are right. Wanted were shuffles within the warps and "
            "no atomics.",
        ),
    ),
    speed=Speed(
        peer="copy bandwidth",
        case=matrix_case(16384, 8192),
        bytes_moved=lambda case: 4 * case.sizes["rows"] * case.sizes["columns"],
        # A plain loop reaches 0.57 on an H200, eight loads on their way 1.05.
        bands={"bronze": 0.50, "silver": 0.75, "gold": 0.92},
        reads_only=True,
    ),
    shares=SHARES,
)
