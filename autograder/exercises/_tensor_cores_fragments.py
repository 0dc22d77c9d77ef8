"""Chapter 7's fragments: a tile that ldmatrix reads without conflicts, and products."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
    Exercise,
    Launch,
    NearMiss,
    Output,
    Outputs,
    Problem,
    Tolerance,
)
from autograder.exercises._tensor_cores import (
    FIRST_TILES,
    SHARES,
    SMALL_CASES,
    STEM,
    TOLERANCE,
    draw_matrix,
    hidden,
    in_blocks,
    problem_with,
    product_of,
    quadrants_swapped,
    reference,
    structure,
    timed,
)
from autograder.exercises._tensor_cores_mistakes import (
    HALVES_OF_A_FRAGMENT,
    SWIZZLED,
    parts_of_a_tile,
)
from autograder.totals import barriers, moves, needed, once_through_shared, shared

# --- swizzle ----------------------------------------------------------------------


def _copy_case(tiles: int, regime: str = "distinct") -> Case:
    said = {"distinct": "normal values", "special": "NaN and Inf among them"}[regime]
    name = f"{tiles} tile{'s' if tiles > 1 else ''} of 64 x 64, {said}"
    return Case(name, {"tiles": tiles}, regime, torch.float16)


def _copy_problem(case: Case, generator: torch.Generator) -> Problem:
    tiles = case.sizes["tiles"]
    x = draw_matrix(64 * tiles, 64, case.regime, generator)
    return Problem(
        {"x": x, "out": None},
        {"out": Output(tuple(x.shape), torch.float16)},
        Launch((tiles,), (128,)),
    )


def _copied(arguments: Arguments) -> Outputs:
    return {"out": tensor(arguments, "x").double()}


def _copy_hidden(generator: torch.Generator) -> Iterator[Case]:
    yield _copy_case(int(torch.randint(2, 6, (), generator=generator)))
    yield _copy_case(1, "special")


SWIZZLE = Exercise(
    id="swizzle",
    stem=STEM,
    title="Eight rows, all 32 banks",
    kind="core",
    points=5,
    language="cuda",
    entry="kernel",
    name="copy_fragments",
    source="solutions/tensor_cores/swizzle.cu",
    goal="Place the groups of a row so that eight rows keep the same group in eight "
    "places.",
    requirements=(
        "A row has no padding: 64 halves, 128 bytes, eight groups.",
        "Groups of eight halves stay together, and every one has a place of its own.",
        "Four wavefronts per request of 512 bytes, stores and ldmatrix.",
    ),
    problem=_copy_problem,
    reference=_copied,
    cases=(_copy_case(1), _copy_case(3), _copy_case(2, "special")),
    hidden=_copy_hidden,
    tolerance=Tolerance(factor=0.0),
    hints=(
        "Rows are 128 bytes long, so all of them begin at the same bank. In which "
        "place may row r keep its group g, so that row r + 1 keeps it in another?",
        "Chapter 2's exclusive or: it permutes the groups of each row, and by another "
        "number in each of eight rows.",
        "group ^= row % 8;",
    ),
    onward="Swizzle by row % 4 instead, and predict the wavefronts before you trace.",
    counts=(*moves(asked=True), *once_through_shared(64 * 64 * 2)),
    # Without any swizzle the copy is right, and slow: the counts are what is asked.
    shares={"correct": 0.0, "counts": 1.0, "speed": 0.0},
)

# --- mma_sync_gemm ----------------------------------------------------------------

MMA_SYNC_GEMM = Exercise(
    id="mma_sync_gemm",
    stem=STEM,
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
    hidden=hidden((128, 128), 64, 3),
    tolerance=TOLERANCE,
    near_misses=(
        NearMiss(
            "b not turned",
            product_of(lambda a, b: (a, in_blocks(b, 8, lambda t: t.mT))),
            "Each 8 x 8 part of b is multiplied transposed. mma.sync wants b by "
            "columns, and the tile is stored by rows: load it with "
            "kw::ldmatrix_trans.",
        ),
        NearMiss(
            "a turned",
            product_of(lambda a, b: (in_blocks(a, 8, lambda t: t.mT), b)),
            "Each 8 x 8 part of a is multiplied transposed: the tile of a is stored as "
            "mma.sync wants it, so load it with kw::ldmatrix, without _trans.",
        ),
        NearMiss(
            "a's quadrants",
            product_of(lambda a, b: (in_blocks(a, 16, quadrants_swapped), b)),
            "In each 16 x 16 of a, upper right and lower left are exchanged: matrix 1 "
            "of an ldmatrix is the one *below* matrix 0. Lanes 0 to 15 name the rows, "
            "lanes 16 to 31 the same rows eight columns further.",
        ),
        NearMiss(
            "b's quadrants",
            product_of(lambda a, b: (a, in_blocks(b, 16, quadrants_swapped))),
            "In each 16 x 16 of b, upper right and lower left are exchanged: the two "
            "registers of one product are two parts of b one *below* the other. Look "
            "at which lanes name which rows, and at which registers you pair.",
        ),
        *SWIZZLED,
        *HALVES_OF_A_FRAGMENT,
        *parts_of_a_tile(64, 64),
        *FIRST_TILES,
    ),
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
