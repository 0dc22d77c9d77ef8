"""Sixteen bytes at a time: the tile's groups of four in another order."""

from __future__ import annotations

from autograder.exercise import Exercise, Structure
from autograder.exercises.transpose.shared import (
    EXACT,
    SHARES,
    WITHOUT_CONFLICTS,
    matrix_case,
    problem_with,
    reference,
    timed,
)
from autograder.ideals import moves

TRANSPOSE_SWIZZLED = Exercise(
    id="transpose_swizzled",
    title="Sixteen bytes at a time, swizzled",
    kind="ladder",
    points=25,
    language="cuda",
    entry="kernel",
    name="transpose_swizzled",
    source="solutions/transpose/swizzled.cu",
    goal="Transpose with 128-bit loads and stores and no bank conflicts: as close to "
    "copy bandwidth as you can.",
    requirements=(
        "A block of 8 x 8 threads moves a tile of 32 x 32 floats; rows and columns "
        "are multiples of 4.",
        "`blockIdx.x` counts tiles down a column of `x` now, `blockIdx.y` along a row.",
        "Four floats at a time from `x` into the tile, and into `out`; the tile is "
        "read float by float.",
        "Per request: 16 sectors in global memory, 4 wavefronts into the tile, 1 out "
        "of it.",
    ),
    problem=problem_with((8, 8), down=True),
    reference=reference,
    cases=(
        matrix_case(64, 96),
        matrix_case(96, 64),
        matrix_case(36, 68),
        matrix_case(4, 256),
        matrix_case(32, 4),
        matrix_case(0, 8),
        matrix_case(100, 36, "special"),
    ),
    tolerance=EXACT,
    hints=(
        "A row of the tile is eight groups of four floats. When the lanes of a warp"
        " read a column, they are in eight different rows and in only one group of "
        "banks. Where could each row keep its groups instead?",
        "Store group `g` of row `r` at place `g ^ (r / 4)`. For one row that is "
        "another order of the same eight places; rows 4, 8, 12, … apart differ in "
        "it.",
        "In: `*reinterpret_cast<float4*>(&tile[r][4 * (group ^ (r / 4))])` = four "
        "floats of `x`. Out: thread (group, c) reads rows `4 * group + j`, j = 0 to"
        " 3, at column `4 * ((c / 4) ^ group) + c % 4`, and stores them as one "
        "`float4`.",
    ),
    onward="Do without shared memory: a 4 x 4 square a thread, turned in registers.",
    counts=(*moves(width=16), *WITHOUT_CONFLICTS),
    structure=(
        Structure(
            holds=("LDG.E.128", "STG.E.128"),
            message="The values are right, and the machine code lacks a 128-bit load "
            "or store (LDG.E.128, STG.E.128). Read x and write out through float4 "
            "pointers.",
        ),
    ),
    speed=timed({"bronze": 0.70, "silver": 0.80, "gold": 0.88}),
    shares=SHARES,
)
