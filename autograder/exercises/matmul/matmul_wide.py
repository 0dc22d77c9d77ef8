"""Sixteen bytes an instruction, out of a tile that is turned."""

from __future__ import annotations

from autograder.exercise import Count, Exercise
from autograder.exercises.matmul.shared import (
    CASES,
    SHARES,
    TOLERANCE,
    WIDE_LOADS,
    in_fours,
    problem_with,
    reference,
    shape_case,
    tiles,
)
from autograder.ideals import barriers, moves

MATMUL_WIDE = Exercise(
    id="matmul_wide",
    title="Sixteen bytes an instruction",
    kind="core",
    points=10,
    language="cuda",
    entry="kernel",
    name="matmul_wide",
    source="solutions/matmul/wide.cu",
    goal="Turn a's tile when it is stored, so that a thread loads the four values of "
    "a step in one instruction from each tile.",
    requirements=(
        "Blocks of 16 x 16 threads compute 64 x 64 elements of c; thread (x, y) has "
        "rows 4 y to 4 y + 3 of them and columns 4 x to 4 x + 3.",
        "n and k are multiples of 4; m is any number.",
        "16 bytes at a time from a, from both tiles and to c: two shared loads for "
        "sixteen products.",
    ),
    problem=problem_with(tiles(64, 64, 16, 16)),
    reference=reference,
    # Two blocks down: the other cases have no more than one.
    cases=in_fours(shape_case(128, 64, 96), *CASES[1:]),
    tolerance=TOLERANCE,
    hints=(
        "A float4 of a is four steps i of one row. In the turned tile these belong to "
        "four rows i of it, at the same place: four stores of one float each.",
        "a_tile[a_i][a_row] = four.x;  a_tile[a_i + 1][a_row] = four.y;  and so on. "
        "For a step, a thread's four rows of a are a_tile[i][4 * y] to a_tile[i][4 * "
        "y + 3].",
        "float down[4];  *reinterpret_cast<float4*>(down) = "
        "*reinterpret_cast<float4*>(&a_tile[i][4 * y]);  and likewise across, from "
        "&b_tile[i][4 * x]. At the end sums[r], four floats, goes to row row + r.",
    ),
    onward="How many wavefronts does each of the two loads take? Ask the trace, line "
    "by line; the next rung is about that.",
    counts=(
        *moves({"b": 128 / 64}, width=16),
        # Two loads for sixteen products, by warps of 32.
        Count("requests", "shared", "load", ideal=2 / 16 * 128 * 64 * 96 / 32),
        barriers(12, 13),
    ),
    structure=(WIDE_LOADS,),
    shares=SHARES,
)
