"""The ladder: as close to cuBLAS as may be."""

from __future__ import annotations

from autograder.exercise import Count, Exercise
from autograder.exercises.tensor_cores.shared import (
    ASYNCHRONOUS,
    TOLERANCE,
    problem_with,
    product_case,
    reference,
    timed,
)
from autograder.ideals import barriers, moves, needed

_STAGE = 2 * 64 * (128 + 256)  # bytes

GEMM_HALF = Exercise(
    id="gemm_half",
    title="As close to cuBLAS as you can",
    kind="ladder",
    points=30,
    language="cuda",
    entry="kernel",
    name="gemm_half",
    source="solutions/tensor_cores/double_buffered.cu",
    goal="Multiply 8192 x 8192 halves as fast as you can, with a 128 x 256 tile of c a "
    "block.",
    requirements=(
        "Blocks of 256 threads, numbered in one line: which tile a block makes is your "
        "choice.",
        "144 KB of dynamic shared memory: three stages of 48 KB, or what you make of "
        "it.",
        "m is a multiple of 128, n of 256, k of 64.",
        "Four wavefronts per request of ldmatrix; each block loads each byte once.",
        "While a tile is multiplied, copies of a next one are under way; one barrier "
        "for each tile, and two more at most.",
    ),
    problem=problem_with((128, 256), 256, 147_456, line=True),
    reference=reference,
    cases=(
        product_case(128, 512, 256),
        product_case(384, 256, 64),
        product_case(128, 256, 128),
        product_case(128, 256, 0),
        product_case(128, 256, 192, "large"),
        product_case(128, 256, 64, "special"),
        # More tiles down than an order of the blocks by eights takes in one round.
        product_case(1152, 512, 64),
    ),
    tolerance=TOLERANCE,
    hints=(
        "Start from gemm_pipelined, with eight warps of 64 x 64, four of them side by "
        "side. Then three ideas, one at a time: larger tiles, fragments a step ahead, "
        "an order of the blocks that suits the L2 cache.",
        "Keep two sets of fragments. While the products of step s are issued, the "
        "ldmatrix of step s + 1 is on its way; in a tile's last step that is the first "
        "step of the next tile, so wait and synchronize there.",
        "Unroll the four steps of a tile by hand or with #pragma unroll, so that "
        "held[s % 2] has a constant index; number the blocks eight row tiles down, "
        "then one column tile on; kw::store_tile<4> writes four warps side by side.",
    ),
    onward="Where chapter 10 ends, a warpgroup multiplies 64 x 256 at once, straight "
    "from shared memory.",
    counts=(
        *moves({"a": 2}),
        Count("wavefronts", "shared", "load", ideal=8192),
        # 8 x 32 parts of c, 16 steps.
        needed("matrix products", 4096),
        # One for each of the four tiles, one before and one behind all; two a tile are
        # no pipeline.
        barriers(5, 6),
        # Two stages are enough: of the four tiles three have a next one, and fragments
        # a step ahead wait for it before the last of a tile's four steps.
        Count(
            "bytes under way at a product",
            ideal=_STAGE,
            times=None,
            at_least=3 / 4 * 3 / 4 * _STAGE,
            advice="Send for a next tile before you multiply, and let the wait leave "
            "it open.",
        ),
    ),
    structure=ASYNCHRONOUS,
    speed=timed({"bronze": 0.36, "silver": 0.44, "gold": 0.50}),
    shares={"correct": 0.4, "counts": 0.2, "speed": 0.4},
)
