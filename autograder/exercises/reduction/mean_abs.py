"""Magnitudes averaged down each column of a matrix."""

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
        {"x": x, "out": None, "rows": rows, "columns": columns},
        {"out": Output((columns,), torch.float32)},
        Launch((max(1, -(-columns // 32)),), (32, 32)),
    )


MEAN_ABS = Exercise(
    id="mean_abs",
    title="Mean magnitudes down the columns",
    kind="core",
    points=20,
    language="cuda",
    entry="kernel",
    name="mean_abs",
    source="solutions/reduction/columns.cu",
    goal="Average the magnitudes of each column of a matrix, with coalesced loads.",
    requirements=(
        "Blocks of 32 x 32 threads; block b has columns 32 * b to 32 * b + 31, those "
        "that exist.",
        "`out[c]` is the sum of |x| down column c, divided by the number of rows; NaN "
        "where there are none.",
        "At most 4.5 sectors and one wavefront per request, one barrier, no atomics.",
    ),
    problem=_problem,
    reference=of_matrix(lambda x: x.abs().mean(0)),
    cases=(
        matrix_case(96, 64),
        matrix_case(100, 33),
        matrix_case(31, 70),
        matrix_case(257, 5),
        matrix_case(1, 40),
        matrix_case(0, 3),
        matrix_case(5, 0),
        matrix_case(300, 20, "shifted"),
        matrix_case(70, 50, "special"),
    ),
    # Magnitudes have one sign; the division's own eps/2 is within the factor.
    tolerance=tolerance_along("rows", lambda x: x.abs().sum(0) / max(1, len(x))),
    hints=(
        "Lanes beside each other must read beside each other: along a row. So the 32 "
        "sums of one column end up in 32 different warps. How do they come together?",
        "Each thread goes down its column, every 32nd row (several loads before the "
        "first addition), and leaves its sum in a tile. After one barrier warp w takes "
        "column w of the tile, and shuffles. Chapter 2 knows how to read a column "
        "without conflicts.",
        "__shared__ float tile[32][33];  tile[threadIdx.y][threadIdx.x] = sum; "
        "barrier;  sum = tile[threadIdx.x][threadIdx.y];  five shuffles;  the thread "
        "with threadIdx.x == 0 writes column blockIdx.x * 32 + threadIdx.y, if it "
        "exists, divided by rows.",
    ),
    onward="A matrix of 32 columns and a million rows is one block's work. Cut it.",
    counts=(*moves(), *shared(64, 64), barriers(1)),
    structure=(
        Structure(
            lacks=("RED", "ATOM"),
            message="The values are right, and made by atomics: let each warp add one "
            "column's sums instead.",
        ),
    ),
    speed=Speed(
        peer="copy bandwidth",
        case=matrix_case(16384, 8192),
        bytes_moved=lambda case: 4 * case.sizes["rows"] * case.sizes["columns"],
        # Eight loads on their way reach 1.02 on an H200.
        bands={"bronze": 0.50, "silver": 0.75, "gold": 0.92},
        reads_only=True,
    ),
    shares=SHARES,
)
