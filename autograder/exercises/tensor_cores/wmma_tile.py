"""One tile of c a warp, out of global memory."""

from __future__ import annotations

from autograder.exercise import Exercise
from autograder.exercises.tensor_cores.shared import (
    TOLERANCE,
    problem_with,
    product_case,
    reference,
    structure,
)
from autograder.ideals import moves, needed

WMMA_TILE = Exercise(
    id="wmma_tile",
    title="One tile a warp",
    kind="warm-up",
    points=10,
    language="cuda",
    entry="kernel",
    name="wmma_tile",
    source="solutions/tensor_cores/wmma_tile.cu",
    goal="Multiply two matrices of halves, a 16 x 16 tile of c a warp, on the tensor "
    "cores.",
    requirements=(
        "Blocks of one warp; m, n and k are multiples of 16, k may be 0.",
        "Sums in float: `sum` is an accumulator of floats. A fragment holds rubbish "
        "until it is filled or loaded.",
        "HMMA in the machine code: the tensor cores do the products.",
    ),
    problem=problem_with((16, 16), 32),
    reference=reference,
    cases=(
        product_case(32, 48, 64),
        product_case(16, 16, 16),
        product_case(64, 16, 160),
        product_case(16, 32, 0),
        product_case(48, 32, 64, "large"),
        product_case(16, 64, 96, "special"),
    ),
    tolerance=TOLERANCE,
    hints=(
        "Three calls make a step: load a tile of a, load a tile of b, multiply and "
        "add. What must have happened before the first step?",
        "In step i the tile of a begins at row `row`, column i; that of b at row i, "
        "column `column`. load_matrix_sync wants the address of that element, and how "
        "far it is from one row to the next.",
        "wmma::fill_fragment(sum, 0.0f);  then for i = 0, 16, … below k: "
        "wmma::load_matrix_sync(left, a + row * k + i, k);  the same for right with "
        "b + i * n + column and n;  wmma::mma_sync(sum, left, right, sum);",
    ),
    onward="Count the bytes: each tile of a is loaded n / 16 times. How often does a "
    "block of 128 x 128 load it?",
    counts=(
        # A block is one of 2 x 3 tiles of c.
        *moves({"a": 3, "b": 2}, asked=True),
        # Four steps of 16 along k.
        needed("matrix products", 4),
    ),
    structure=structure(
        "HMMA",
        message="The values are right, and the machine code holds no HMMA: the tensor "
        "cores did not work. Multiply with wmma::mma_sync.",
    ),
    # Not timed: beside a kernel that leaves the chip so idle, cuBLAS would meet another
    # clock in every turn.
    shares={"correct": 0.7, "counts": 0.3, "speed": 0.0},
)
