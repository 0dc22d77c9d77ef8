"""WMMA from shared memory."""

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

WMMA_GEMM = Exercise(
    id="wmma_gemm",
    title="WMMA from shared memory",
    kind="core",
    points=20,
    language="cuda",
    entry="kernel",
    name="wmma_gemm",
    source="solutions/tensor_cores/wmma_shared.cu",
    goal="Multiply with a 128 x 128 tile of c a block, whose warps find a and b in "
    "shared memory.",
    requirements=(
        "Blocks of 256 threads; each of the eight warps makes 64 x 32 of c: 4 x 2 "
        "fragments.",
        "Two barriers for each tile of k, and no race.",
        "No bank conflicts: one wavefront per request of the fragments, four per "
        "16-byte store.",
    ),
    problem=problem_with((128, 128), 256),
    reference=reference,
    cases=SMALL_CASES,
    tolerance=TOLERANCE,
    hints=(
        "After the copies the tiles lie in shared memory, and every thread has written "
        "a part of them. What must happen before a warp reads, and what before the "
        "next round overwrites?",
        "Four steps of 16 along the tile. In each: four fragments x, rows `row` to "
        "`row` + 63 of left; two fragments y, columns `column` to `column` + 31 of "
        "right; eight products.",
        "x[r] from left + place(row + 16 * r, j, DEPTH), pitch DEPTH + PAD;  y[s] from "
        "right + place(j, column + 16 * s, 128), pitch 128 + PAD;  "
        "wmma::mma_sync(sum[r][s], x[r], y[s], sum[r][s]);  __syncthreads() before "
        "and after.",
    ),
    onward="Set PAD to 0 and trace it: how many wavefronts does a fragment cost?",
    counts=(
        *moves({"a": 2}),
        # Rows of 128 bytes a warp, and fragments without conflicts.
        *shared(1536, 4608),
        # Three tiles of k, two barriers each.
        barriers(6),
        # 8 x 8 parts of c, 12 steps.
        needed("matrix products", 768),
    ),
    structure=structure(
        "HMMA",
        message="The values are right, and the machine code holds no HMMA: the tensor "
        "cores did not work. Multiply with wmma::mma_sync.",
    ),
    speed=timed({"bronze": 0.20, "silver": 0.27, "gold": 0.33}),
    shares=SHARES,
)
