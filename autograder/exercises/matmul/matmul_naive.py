"""One thread an element of c, rows first."""

from __future__ import annotations

from autograder.exercise import Exercise, Launch
from autograder.exercises.matmul.shared import (
    CASES,
    TOLERANCE,
    problem_with,
    reference,
    tiles,
)
from autograder.ideals import moves


def _rows_first(m: int, n: int) -> Launch:
    """Let ``blockIdx.x`` count along the rows, 32 a block."""
    return tiles(32, 8, 32, 8)(n, m)


MATMUL_NAIVE = Exercise(
    id="matmul_naive",
    title="One thread an element of c",
    kind="warm-up",
    points=10,
    language="cuda",
    entry="kernel",
    name="matmul_naive",
    source="solutions/matmul/naive.cu",
    goal="Multiply a, m x k, by b, k x n: each thread computes one element of c.",
    requirements=(
        "Blocks of 32 x 8 threads; `threadIdx.x` counts rows of c, `threadIdx.y` "
        "columns, as the given lines say.",
        "Right for every m, n and k, 0 among them; nothing is read or written outside.",
    ),
    problem=problem_with(_rows_first),
    reference=reference,
    cases=CASES,
    tolerance=TOLERANCE,
    hints=(
        "Element (row, column) of c is the sum of k products: a's row times b's "
        "column. Which index moves along a row of a, and which down a column of b?",
        "In memory a[row][i] is a[row * k + i] and b[i][column] is b[i * n + column]. "
        "Sum in a variable of the thread's own, and store once.",
        "if (row < m && column < n) { float sum = 0.0f;  for i from 0 to k - 1: sum "
        "+= a[row * k + i] * b[i * n + column];  c[row * n + column] = sum; }",
    ),
    onward="Trace it before you go on: which of the three arrays costs what?",
    counts=moves({"a": 96, "b": 64}, asked=True),
)
