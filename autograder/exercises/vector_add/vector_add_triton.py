"""The same addition in Triton: a program a block of elements."""

from __future__ import annotations

from autograder.drawing import vector_case
from autograder.exercise import Case, Count, Exercise, Structure, Tolerance
from autograder.exercises.vector_add.shared import (
    CASES,
    add_problem,
    add_reference,
    timed,
)
from autograder.ideals import moves
from kernelwright.trace.triton.report import BUSIEST_PROGRAM

VECTOR_ADD_TRITON = Exercise(
    id="vector_add_triton",
    title="Vector add in Triton",
    kind="core",
    points=15,
    language="python",
    entry="function",
    name="vector_add_triton",
    source="solutions/vector_add/triton_add.py",
    goal="Write the same addition in Triton: a kernel over blocks, and its launch.",
    requirements=(
        "Program `p` adds elements `p * BLOCK` to `(p + 1) * BLOCK - 1`, "
        "those that exist.",
        "`vector_add_triton(x, y)` returns a new tensor of their shape, which may have "
        "several axes, for every number of elements, 0 included.",
    ),
    problem=add_problem(None),
    reference=add_reference,
    cases=(*CASES, Case("7 x 50 elements", {"n": 350, "rows": 7}), vector_case(4097)),
    tolerance=Tolerance(factor=1.0),
    hints=(
        "A Triton program is a whole block. Its `i` is a vector of `BLOCK` indices,"
        " and its guard is a vector of booleans.",
        "`i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)` and `inside = i < n`."
        " Both `tl.load` and `tl.store` take `mask=inside`.",
        "`x = tl.load(x_ptr + i, mask=inside)`, the same for `y`, then "
        "`tl.store(out_ptr + i, x + y, mask=inside)`. Launch: "
        "`add_kernel[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)`, unless "
        "`n` is 0.",
    ),
    onward="Try BLOCK=256 and BLOCK=4096 on a GPU. Does the time care?",
    counts=(
        *moves(busiest=None),
        # Of x, y and out 1,024 floats each.
        Count(BUSIEST_PROGRAM, ideal=3 * 4 * 1024, times=1),
    ),
    # Of several programs.
    counted=-1,
    structure=(
        Structure(
            holds=("triton.jit", "tl.load", "tl.store"),
            message="The values are right, and no Triton kernel made them: write one "
            "with @triton.jit that loads (tl.load), adds and stores (tl.store).",
        ),
    ),
    prelude="import torch\nimport kernelwright as kw\n"
    "import triton\nimport triton.language as tl\n",
    speed=timed({"bronze": 0.60, "silver": 0.80, "gold": 0.92}),
)
