"""Chapter 7: fragments, WMMA, mma.sync with a swizzle, asynchronous stages."""

from __future__ import annotations

from autograder.exercise import Count, Exercise, NearMiss
from autograder.exercises._tensor_cores import (
    FIRST_TILES,
    SHARES,
    SMALL_CASES,
    STEM,
    TOLERANCE,
    columns_kept,
    hidden,
    problem_with,
    product_case,
    reference,
    structure,
    timed,
)
from autograder.exercises._tensor_cores_fragments import MMA_SYNC_GEMM, SWIZZLE
from autograder.exercises._tensor_cores_mistakes import (
    ONE_TILE,
    PITCHES,
    TOO_EARLY,
    parts_of_a_tile,
)
from autograder.totals import barriers, moves, needed, shared

# --- wmma_tile --------------------------------------------------------------------

WMMA_TILE = Exercise(
    id="wmma_tile",
    stem=STEM,
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
    hidden=hidden((16, 16), 16, 9),
    tolerance=TOLERANCE,
    near_misses=ONE_TILE,
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

# --- wmma_gemm --------------------------------------------------------------------

WMMA_GEMM = Exercise(
    id="wmma_gemm",
    stem=STEM,
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
    hidden=hidden((128, 128), 64, 3),
    tolerance=TOLERANCE,
    near_misses=(*FIRST_TILES, *parts_of_a_tile(64, 32), *PITCHES),
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

# --- gemm_pipelined, stale_stage --------------------------------------------------

_SHARED_BYTES = 3 * 2 * 128 * 64 * 2
_STAGED_CASES = (
    product_case(128, 256, 320),
    product_case(256, 128, 64),
    product_case(128, 128, 128),
    product_case(128, 128, 0),
    product_case(128, 128, 192, "large"),
    product_case(128, 128, 256, "special"),
)
_NOT_DRAINED = NearMiss(
    "not drained",
    columns_kept(lambda at, k: at < k - 128),
    "The last two tiles of k are missing: they were fetched before the loop's end and "
    "never multiplied. The loop goes over all tiles; only the fetching ends earlier.",
)
_HEAD_START_LOST = NearMiss(
    "head start lost",
    columns_kept(lambda at, k: at >= 128),
    "The first two tiles of k are missing: what was fetched before the loop is never "
    "multiplied. The loop begins at tile 0.",
)
_STAGED_COUNTS = (
    *moves({"a": 2}),
    Count("wavefronts", "shared", "load", ideal=5120),
    # Five tiles of k.
    barriers(5, 5.5),
    # 8 x 16 parts of c, 20 steps.
    needed("matrix products", 2560),
)
_ASYNCHRONOUS = structure(
    "LDGSTS",
    "LDSM",
    "HMMA",
    message="The values are right, and the machine code lacks LDGSTS, LDSM or HMMA: "
    "the tiles do not travel past the registers. Bring them with "
    "kw::copy_tile_async, as `fetch` does.",
)

GEMM_PIPELINED = Exercise(
    id="gemm_pipelined",
    stem=STEM,
    title="Three stages under way",
    kind="core",
    points=25,
    language="cuda",
    entry="kernel",
    name="gemm_pipelined",
    source="solutions/tensor_cores/pipelined.cu",
    goal="Fetch tiles asynchronously, two ahead of the one that is multiplied.",
    requirements=(
        "Blocks of 128 threads, three stages of 32 KB in dynamic shared memory.",
        "One barrier for each tile of k; no read before the wait, no stage "
        "overwritten while it is read.",
        "Right for every number of tiles: 0, 1, 2 and more.",
        "LDGSTS, LDSM and HMMA in the machine code.",
    ),
    problem=problem_with((128, 128), 128, _SHARED_BYTES),
    reference=reference,
    cases=_STAGED_CASES,
    hidden=hidden((128, 128), 64, 5),
    tolerance=TOLERANCE,
    near_misses=(_NOT_DRAINED, _HEAD_START_LOST, TOO_EARLY, *FIRST_TILES),
    hints=(
        "Before the loop: two tiles are sent for, each as a group of its own. In round "
        "t: wait until tile t is here, send for tile t + 2, multiply tile t. Which "
        "stage is free at that moment, and how do you know that all warps left it?",
        "kw::cp_async_wait<1>() returns when all groups but the newest one are here. "
        "So exactly one group must be committed in each round, even when there is "
        "nothing left to fetch. The barrier behind the wait serves twice: it shows "
        "everyone tile t, and nobody is in round t - 1 any more.",
        "for t = 0, 1: fetch if t < steps; commit.  Then for each t: "
        "kw::cp_async_wait<STAGES - 2>(); __syncthreads(); fetch tile t + STAGES - 1 "
        "if there is one; kw::cp_async_commit(); half* ready = stages + t % STAGES * "
        "2 * TILE; kw::multiply_tiles(sum, ready, ready + TILE);",
    ),
    onward="Two stages, or four: which of them still fits two blocks into an SM?",
    counts=_STAGED_COUNTS,
    structure=_ASYNCHRONOUS,
    speed=timed({"bronze": 0.30, "silver": 0.39, "gold": 0.46}),
    shares=SHARES,
)

STALE_STAGE = Exercise(
    id="stale_stage",
    stem=STEM,
    title="The pipeline that reads too early",
    kind="detective",
    points=20,
    language="cuda",
    entry="kernel",
    name="stale_stage",
    source="autograder/answers/tensor_cores/stale_stage.cu",
    goal="Mend a pipeline that passed every test on its author's GPU.",
    requirements=(
        "The launch and the three stages stay as they are.",
        "Right for every number of tiles; one barrier for each.",
        "Copies stay asynchronous, two tiles ahead.",
    ),
    problem=problem_with((128, 128), 128, _SHARED_BYTES),
    reference=reference,
    cases=_STAGED_CASES,
    hidden=hidden((128, 128), 64, 5),
    tolerance=TOLERANCE,
    near_misses=(_NOT_DRAINED, _HEAD_START_LOST, *FIRST_TILES),
    hints=(
        "Trace it: which problem does the report name, in which line? And for which "
        "numbers of tiles does it appear?",
        "cp_async_wait<1> leaves the newest group open, whichever that is. Write down, "
        "for k of three tiles, which groups have been committed when round 2 waits.",
        "In the last rounds nothing is fetched and so nothing committed, and the "
        "newest group is the one that is needed. Commit in every round, an empty "
        "group too: move kw::cp_async_commit() out of the if, in both loops.",
    ),
    onward="Why did it pass on a GPU? What would make it fail there?",
    counts=_STAGED_COUNTS,
    structure=_ASYNCHRONOUS,
    # Its values come right by chance on a GPU; there is nothing to gain in time.
    shares={"correct": 0.6, "counts": 0.4, "speed": 0.0},
)

# --- gemm_half (ladder) -----------------------------------------------------------

GEMM_HALF = Exercise(
    id="gemm_half",
    stem=STEM,
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
    ),
    hidden=hidden((128, 256), 64, 4),
    tolerance=TOLERANCE,
    near_misses=(_NOT_DRAINED, _HEAD_START_LOST, *FIRST_TILES),
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
    onward="Chapter 19: a warpgroup multiplies 64 x 256 at once, straight from shared "
    "memory.",
    counts=(
        *moves({"a": 2}),
        Count("wavefronts", "shared", "load", ideal=8192),
        # 8 x 32 parts of c, 16 steps.
        needed("matrix products", 4096),
    ),
    structure=_ASYNCHRONOUS,
    speed=timed({"bronze": 0.36, "silver": 0.44, "gold": 0.50}),
    shares={"correct": 0.4, "counts": 0.2, "speed": 0.4},
)

EXERCISES = (
    WMMA_TILE,
    WMMA_GEMM,
    SWIZZLE,
    MMA_SYNC_GEMM,
    GEMM_PIPELINED,
    STALE_STAGE,
    GEMM_HALF,
)
