"""ldmatrix and mma.sync, from tiles without padding."""

from __future__ import annotations

from autograder.exercise import Exercise
from autograder.exercises.tensor_cores.shared import (
    SHARES,
    SMALL_CASES,
    TOLERANCE,
    problem_with,
    reference,
    structure,
    timed,
)
from autograder.ideals import barriers, moves, needed, shared

MMA_SYNC_GEMM = Exercise(
    id="mma_sync_gemm",
    title="ldmatrix and mma.sync",
    kind="core",
    points=20,
    language="cuda",
    entry="kernel",
    name="mma_sync_gemm",
    source="solutions/tensor_cores/mma_swizzled.cu",
    goal="Multiply with the machine's own instructions, from tiles that are swizzled "
    "and not padded.",
    requirements=(
        "Blocks of 128 threads; each of the four warps makes 64 x 64 of c: 4 x 8 "
        "products of 16 x 8.",
        "The tiles have no padding: 128 x 64 and 64 x 128 halves, 32 KB together.",
        "Four wavefronts per request in shared memory, stores and ldmatrix.",
        "LDSM and HMMA in the machine code.",
    ),
    problem=problem_with((128, 128), 128),
    reference=reference,
    cases=SMALL_CASES,
    tolerance=TOLERANCE,
    hints=(
        "A step has three parts: four fragments of a, four of b, 4 x 8 products. What "
        "does each lane of a warp name when it loads one, and what does it get?",
        "ldmatrix for a 16 x 16 part: lane l names row l % 16 and columns "
        "l / 16 * 8 to l / 16 * 8 + 7. That holds for both operands; b's needs "
        "_trans. Afterwards y[s] holds two operands for mma_sync: registers 0 and 1, "
        "and registers 2 and 3.",
        "kw::ldmatrix(x[r], left + kw::swizzled(row + 16 * r + lane % 16, j + lane / "
        "16 * 8, 64));   kw::ldmatrix_trans(y[s], right + kw::swizzled(j + lane % 16, "
        "column + 16 * s + lane / 16 * 8, 128));   for each s < 8: unsigned pair[2] = "
        "{y[s / 2][s % 2 * 2], y[s / 2][s % 2 * 2 + 1]};   "
        "kw::mma_sync<half>(sum[r][s], x[r], pair, sum[r][s]);",
    ),
    onward="A warp of 32 x 128 would have as many sums: how many loads would it need?",
    counts=(
        *moves({"a": 2}),
        *shared(1536, 3072),
        barriers(6),
        needed("matrix products", 1536),
    ),
    structure=structure(
        "LDSM",
        "HMMA",
        message="The values are right, and the machine code lacks LDSM or HMMA. Load "
        "fragments with kw::ldmatrix and multiply with kw::mma_sync.",
    ),
    speed=timed({"bronze": 0.22, "silver": 0.30, "gold": 0.36}),
    shares=SHARES,
)
