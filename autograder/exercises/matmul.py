"""Chapter 6: the fp32 matrix product, from one thread an element to 8 x 8 sums."""

from __future__ import annotations

from functools import partial

import torch

from autograder.exercise import Count, Exercise, Launch, Structure
from autograder.exercises._matmul import (
    CASES,
    SHARES,
    STEM,
    TOLERANCE,
    hidden,
    hidden_in_fours,
    in_fours,
    problem_with,
    reference,
    shape_case,
    tiles,
    timed,
)
from autograder.exercises._matmul_mistakes import (
    NOTHING_STORED,
    PITCHES,
    SUMS,
    TILED,
    blocks_exchanged,
    last_product,
    last_tile,
    mistake,
    one_short,
    right,
    same_tile,
    written,
)
from autograder.exercises._matmul_registers import REGISTERS
from autograder.totals import barriers, moves, shared

_FIRST = CASES[0]
# Two blocks down: the other cases have no more than one.
_BLOCKED_CASES = (shape_case(128, 64, 96), *CASES[1:])
_FAST_CASES = in_fours(
    shape_case(128, 256, 64),
    shape_case(132, 260, 36),
    *CASES[2:6],
    shape_case(40, 132, 20, "special"),
)

# --- matmul_naive, matmul_coalesced -----------------------------------------------


def _rows_first(m: int, n: int) -> Launch:
    """Let ``blockIdx.x`` count along the rows, 32 a block."""
    return tiles(32, 8, 32, 8)(n, m)


def _not_exchanged(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return what the first rung's indices write under the second rung's launch."""
    c = a @ b
    m, n = c.shape
    row, column = torch.arange(m)[:, None], torch.arange(n)[None, :]
    inside = (row < -(-n // 32) * 32) & (column < -(-m // 8) * 8)
    return torch.where(inside, c, torch.nan)


def _sides_exchanged(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return what blocks write that take steps of 32 down and of 8 along a row."""
    last = 8 * (-(-b.shape[1] // 32) - 1) + 32
    within = written(right, lambda row, column: (row % 32 < 8) & (column < last))
    return within(a, b)


def _blocks_not_exchanged(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return what blocks of 8 rows along x and 32 columns along y write."""
    m, n = a.shape[0], b.shape[1]
    rows, columns = -(-n // 32) * 8, -(-m // 8) * 32
    within = written(right, lambda row, column: (row < rows) & (column < columns))
    return within(a, b)


MATMUL_NAIVE = Exercise(
    id="matmul_naive",
    stem=STEM,
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
    hidden=hidden,
    tolerance=TOLERANCE,
    near_misses=SUMS,
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

MATMUL_COALESCED = Exercise(
    id="matmul_coalesced",
    stem=STEM,
    title="The same sums, coalesced",
    kind="core",
    points=15,
    language="cuda",
    entry="kernel",
    name="matmul_coalesced",
    source="solutions/matmul/coalesced.cu",
    goal="Compute the same product with loads and stores that a warp makes side by "
    "side.",
    requirements=(
        "Blocks of 32 x 8 threads; `blockIdx.x` counts blocks along a row of c, "
        "`blockIdx.y` down a column.",
        "At most 2.6 sectors per request for the loads, one of a and four of b, and "
        "4.2 for the stores.",
        "Right for every m, n and k.",
    ),
    problem=problem_with(tiles(32, 8, 32, 8)),
    reference=reference,
    cases=CASES,
    hidden=hidden,
    tolerance=TOLERANCE,
    near_misses=(
        mistake(
            "rows still along x",
            _not_exchanged,
            "The threads stand as in the first rung, and the blocks no longer do: "
            "here `blockIdx.x` and `threadIdx.x` belong to the column.",
        ),
        mistake(
            "blocks still along x",
            _blocks_not_exchanged,
            "The threads are exchanged and the blocks are not: here `blockIdx.x` "
            "belongs to the column, and `blockIdx.y` to the row.",
        ),
        mistake(
            "threads still along x",
            written(right, lambda row, column: column % 32 < 8),
            "Of every 32 columns only 8 are written: the blocks are exchanged and the "
            "threads are not. `threadIdx.x`, of which there are 32, belongs to the "
            "column, and `threadIdx.y` to the row.",
        ),
        mistake(
            "sides exchanged",
            _sides_exchanged,
            "The blocks' sides are exchanged: a block is blockDim.x = 32 columns wide "
            "and blockDim.y = 8 rows high, so that its first row is blockIdx.y * "
            "blockDim.y.",
        ),
        mistake(
            "one side for both",
            written(right, lambda row, column: row % 32 < 8),
            "Of every 32 rows only 8 are written: a block is 8 rows high, so its first "
            "row is blockIdx.y * blockDim.y.",
        ),
        *SUMS,
    ),
    hints=(
        "`threadIdx.x` grows from lane to lane. Which of row and column should grow "
        "with it, so that 32 lanes read 32 neighbours of b?",
        "Along a warp the row stays and the column grows: then all lanes read the "
        "same element of a, which is one sector, and neighbours of b and c.",
        "int row = blockIdx.y * blockDim.y + threadIdx.y;  int column = blockIdx.x * "
        "blockDim.x + threadIdx.x;  and everything else as before.",
    ),
    onward="Both kernels load two floats for each product. What could be done with "
    "fewer?",
    counts=(
        # A warp reads 32 columns of b for each row of c, and of a one number at a time:
        # a sector, as good as eight.
        moves({"a": 8 * 96 / 32, "b": 64})
    ),
    shares=SHARES,
)

# --- matmul_tiled, missing_barrier ------------------------------------------------

MATMUL_TILED = Exercise(
    id="matmul_tiled",
    stem=STEM,
    title="Tiles in shared memory",
    kind="core",
    points=20,
    language="cuda",
    entry="kernel",
    name="matmul_tiled",
    source="solutions/matmul/tiled.cu",
    goal="Bring tiles of a and b into shared memory, so that each element is loaded "
    "once for 32 products.",
    requirements=(
        "Blocks of 32 x 32 threads; block (x, y) computes the 32 x 32 elements of c "
        "from row 32 * y and column 32 * x on.",
        "One float loaded from global memory for 16 products: 1/32 of a, 1/32 of b "
        "each.",
        "Two barriers for each pair of tiles, and no more.",
        "Right for every m, n and k.",
    ),
    problem=problem_with(tiles(32, 32, 32, 32)),
    reference=reference,
    cases=CASES,
    hidden=hidden,
    tolerance=TOLERANCE,
    near_misses=TILED,
    hints=(
        "All 1,024 threads of a block need the same 32 rows of a and 32 columns of b. "
        "They walk along k together, 32 steps at a time: a 32 x 32 tile of each.",
        "For each pair of tiles: every thread brings one element of a and one of b, "
        "zeros where there is none; barrier; 32 products each; barrier, before "
        "anybody overwrites a tile.",
        "a_tile[y][x] = row < m && first + x < k ? a[row * k + first + x] : 0.0f; "
        "b_tile[y][x] = first + y < k && column < n ? b[(first + y) * n + column] : "
        "0.0f;  sum += a_tile[y][i] * b_tile[i][x];",
    ),
    onward="Count what the inner loop does: two loads from shared memory for one "
    "product.",
    counts=(
        *moves({"a": 96 / 32, "b": 64 / 32}),
        # 32 x 32 products a warp and step of k, of a number of a and a row of b each.
        *shared(1536, 2 * 64 * 96 * 128 / 32),
        barriers(8, 9),
    ),
    shares=SHARES,
)

MISSING_BARRIER = Exercise(
    id="missing_barrier",
    stem=STEM,
    title="The kernel that passes its tests",
    kind="detective",
    points=15,
    language="cuda",
    entry="kernel",
    name="missing_barrier",
    source="autograder/answers/matmul/missing_barrier.cu",
    goal="Find out why a tiled product is wrong on large matrices, at other places "
    "each time, and mend it.",
    requirements=(
        "The same tiles and the same launch as for the tiled product.",
        "No race in any trace; at most two barriers for each pair of tiles.",
        "Right for every m, n and k.",
    ),
    problem=problem_with(tiles(32, 32, 32, 32)),
    reference=reference,
    cases=CASES,
    hidden=hidden,
    tolerance=TOLERANCE,
    near_misses=TILED,
    hints=(
        "The trace names two lines and what they share. Which of the two belongs to "
        "the next round of the loop?",
        "A warp that is done with its products starts the next round, and stores. "
        "What keeps it from doing so while another still reads?",
        "A second __syncthreads(); after the loop over i, inside the loop over first "
        "and outside of every if.",
    ),
    onward="With two pairs of tiles that take turns, one barrier is enough. Why?",
    counts=(*moves({"a": 96 / 32, "b": 64 / 32}), barriers(8, 9)),
    shares=SHARES,
)

# --- matmul_register_blocked ------------------------------------------------------

MATMUL_REGISTER_BLOCKED = Exercise(
    id="matmul_register_blocked",
    stem=STEM,
    title="Sixteen sums a thread",
    kind="core",
    points=25,
    language="cuda",
    entry="kernel",
    name="matmul_register_blocked",
    source="solutions/matmul/register_blocked.cu",
    goal="Keep 4 x 4 sums in each thread's registers, so that eight values out of "
    "shared memory feed sixteen products.",
    requirements=(
        "Blocks of 16 x 16 threads compute 64 x 64 elements of c; thread (x, y) has "
        "rows y, y + 16, y + 32, y + 48 of them, and columns likewise.",
        "Half a float loaded from shared memory for each product, one wavefront a "
        "request.",
        "Right for every m, n and k.",
    ),
    problem=problem_with(tiles(64, 64, 16, 16)),
    reference=reference,
    cases=_BLOCKED_CASES,
    hidden=hidden,
    tolerance=TOLERANCE,
    near_misses=(
        *REGISTERS,
        last_product(16),
        last_tile(16),
        one_short(16),
        NOTHING_STORED,
        *PITCHES,
    ),
    hints=(
        "For one step i a thread needs one element of a for each of its four rows, "
        "and one of b for each of its four columns. How many loads is that, and how "
        "many products?",
        "Load the eight values into float down[4], across[4] first; then two loops "
        "over r and s add down[r] * across[s] to sums[r][s].",
        "down[r] = a_tile[y + 16 * r][i];  across[r] = b_tile[i][x + 16 * r];  and "
        "at the end sums[r][s] goes to row top + y + 16 * r, column left + x + 16 * s.",
    ),
    onward="Make it 8 x 8 with tiles of 128, and predict the loads for a product.",
    counts=(
        *moves({"b": 128 / 64}),
        # Four numbers of each for sixteen products.
        *shared(768, 2 / 4 * 128 * 64 * 96 / 32),
        barriers(12, 13),
    ),
    speed=timed(4096, {"bronze": 0.18, "silver": 0.30, "gold": 0.40}),
    shares=SHARES,
)


# --- matmul_fast (ladder) ---------------------------------------------------------


def _kept(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return the sums with what half a last tile keeps of the tile before."""
    if a.shape[1] < 8 or a.shape[1] % 8 == 0:
        return a @ b
    return a @ b + a[:, -8:-4] @ b[-8:-4]


def _last_tile_missing(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    whole = max(0, a.shape[1] - 1) // 8 * 8
    return a[:, :whole] @ b[:whole]


_AHEAD = (
    mistake(
        "last tile missing",
        _last_tile_missing,
        "The products of the last tile of 8 are missing: with the next tile loaded "
        "ahead, the loop still makes one round for each tile, the last one included.",
    ),
    *(
        mistake(
            f"{stuck} does not move",
            partial(same_tile, 8, stuck),
            f"Every round brings the first tile of {stuck} again: {where}.",
        )
        for stuck, where in (
            ("a", "the next one is 8 elements further on in each row"),
            ("b", "the next one is 8 rows further down, 8 * n elements"),
        )
    ),
    mistake(
        "what was there before",
        _kept,
        "Where a last tile has fewer than 8 steps, the registers keep what the tile "
        "before brought, and it is added again: set them to 0 before every load.",
    ),
)

MATMUL_FAST = Exercise(
    id="matmul_fast",
    stem=STEM,
    title="As fast as you can",
    kind="ladder",
    points=30,
    language="cuda",
    entry="kernel",
    name="matmul_fast",
    source="solutions/matmul/double_buffered.cu",
    goal="Multiply with 8 x 8 sums a thread, 16 bytes an instruction and the next "
    "tiles on their way: as close to cuBLAS as you can.",
    requirements=(
        "Blocks of 256 threads, one dimension; block (x, y) computes the 128 x 128 "
        "elements of c from row 128 * y and column 128 * x on.",
        "n and k are multiples of 4; m is any number.",
        "A quarter of a float out of shared memory for each product, 1/64 out of "
        "global memory, both 16 bytes at a time.",
        "One barrier for each 8 steps of k or more.",
    ),
    problem=problem_with(tiles(128, 128, 256)),
    reference=reference,
    cases=_FAST_CASES,
    hidden=hidden_in_fours,
    tolerance=TOLERANCE,
    near_misses=(
        *_AHEAD,
        last_product(8),
        last_tile(8),
        blocks_exchanged(128),
        NOTHING_STORED,
        *PITCHES,
    ),
    hints=(
        "Rung 4 with 128 x 128 elements a block and 8 x 8 a thread loads a quarter "
        "of a float for each product. To load four at a time, a step's values must "
        "lie side by side: turn a's tile when you store it, a_tile[i][row].",
        "Two pairs of tiles: load the next ones into registers, use the present "
        "ones, then store into the other pair; one barrier. Let a warp cover 64 x 32 "
        "elements, lanes 8 x 4, each with 2 x 2 groups of 4 x 4.",
        "float4 a_next, b_next: load(0); store(0); then for each tile: load the next, "
        "barrier, 8 steps from pair `now`, now = 1 - now, store(now). Rows of 132 "
        "floats in a's tile keep the turned stores apart.",
    ),
    onward="128 x 256 elements a block, 16 x 8 sums a thread: more sums for each "
    "load, and nearly all registers; asynchronous copies, and a third pair of tiles.",
    counts=(
        *moves({"a": 256 / 128}, width=16),
        # The order of a warp's lanes is a matter of a half.
        Count("wavefronts", "shared", "load", ideal=8192, times=1.5),
        barriers(8, 9),
    ),
    structure=(
        Structure(
            holds=("LDG.E.128", "LDS.128", "FFMA"),
            lacks=("HMMA", "STL"),
            message="The values are right, and the machine code does not do what this "
            "rung is about: loads of 128 bits from global and from shared memory "
            "(LDG.E.128, LDS.128), products in fp32 (FFMA, no HMMA) and no register "
            "spilled to memory (STL).",
        ),
    ),
    speed=timed(4096, {"bronze": 0.45, "silver": 0.65, "gold": 0.80}),
    shares=SHARES,
)

EXERCISES = (
    MATMUL_NAIVE,
    MATMUL_COALESCED,
    MATMUL_TILED,
    MATMUL_REGISTER_BLOCKED,
    MISSING_BARRIER,
    MATMUL_FAST,
)
