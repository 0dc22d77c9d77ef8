"""Chapter 4's reductions along one dimension of a matrix: rows and columns."""

from __future__ import annotations

import torch
from torch.nn.functional import pad

from autograder.exercise import (
    Case,
    Exercise,
    Launch,
    NearMiss,
    Output,
    Problem,
    Speed,
    Structure,
)
from autograder.exercises._reduction import (
    SHARES,
    STEM,
    THREADS,
    draw_matrix,
    hidden_matrices,
    matrix_case,
    of_matrix,
    tolerance_along,
)
from autograder.totals import barriers, moves, shared

# --- sum_squared ------------------------------------------------------------------


def _rows_problem(case: Case, generator: torch.Generator) -> Problem:
    x = draw_matrix(case, generator)
    rows, columns = x.shape
    return Problem(
        {"x": x, "out": None, "columns": columns},
        {"out": Output((rows,), torch.float32)},
        Launch((rows,), (THREADS,)),
    )


def _by_thread(x: torch.Tensor) -> torch.Tensor:
    """Return (rows, columns of a thread, 256), zeros past the end."""
    rounds = max(1, -(-x.shape[1] // THREADS))
    whole = pad(x, (0, rounds * THREADS - x.shape[1]))
    return whole.view(len(x), rounds, THREADS)


def _by_each_warp(x: torch.Tensor) -> torch.Tensor:
    """Add what eight warps add that all begin at column 0 and go on by 32."""
    column = torch.arange(x.shape[1], device=x.device)
    times = (column // 32 + 1).clamp(max=THREADS // 32)
    return (x.square() * times).sum(1)


def _rounds_overlap(values: torch.Tensor, apart: int) -> torch.Tensor:
    """Weigh rows of eight loads, ``apart`` from each other, that go on by one load."""
    place = torch.arange(len(values), device=values.device)
    return values * (place // apart + 1).clamp(max=8)[:, None]


def _first_warp_twice(x: torch.Tensor) -> torch.Tensor:
    squares = _by_thread(x).square()
    return squares.sum((1, 2)) + squares[:, :, :32].sum((1, 2))


SUM_SQUARED = Exercise(
    id="sum_squared",
    stem=STEM,
    title="Squares along a row",
    kind="core",
    points=20,
    language="cuda",
    entry="kernel",
    name="sum_squared",
    source="solutions/reduction/rows.cu",
    goal="Add the squares of each row of a matrix up, a block a row.",
    requirements=(
        "A block of 256 threads for each row; `out[blockIdx.x]` is the sum of the "
        "row's squares, 0 for rows of no columns.",
        "Right for any number of columns.",
        "Warps add by shuffles; at most two barriers; loads coalesced.",
    ),
    problem=_rows_problem,
    reference=of_matrix(lambda x: x.square().sum(1)),
    cases=(
        matrix_case(4, 1024),
        matrix_case(2, 2500),
        matrix_case(5, 257),
        matrix_case(7, 33),
        matrix_case(4, 31),
        matrix_case(9, 1),
        matrix_case(2, 0),
        matrix_case(4, 500, "shifted"),
        matrix_case(6, 300, "special"),
    ),
    hidden=hidden_matrices,
    # Squares have one sign; a square itself errs by eps/2, and the factor has room.
    tolerance=tolerance_along("columns", lambda x: x.square().sum(1)),
    near_misses=(
        NearMiss(
            "not squared",
            of_matrix(lambda x: x.sum(1)),
            "These are the sums of the rows: square each element before it is added.",
        ),
        NearMiss(
            "squared afterwards",
            of_matrix(lambda x: x.sum(1).square()),
            "The sums are squared, and not what is summed: square each element first.",
        ),
        NearMiss(
            "first block of columns",
            of_matrix(lambda x: x[:, :THREADS].square().sum(1)),
            "Only the first 256 columns are in the sums: each thread goes on to column "
            "threadIdx.x + 256, + 512, and so on, while there is one.",
        ),
        NearMiss(
            "first warp only",
            of_matrix(
                lambda x: (
                    x[:, torch.arange(x.shape[1], device=x.device) % THREADS < 32]
                )
                .square()
                .sum(1)
            ),
            "Only what the first warp read is in the sums: the other seven warps leave "
            "theirs in shared memory, and the first one must add them up.",
        ),
        NearMiss(
            "half of the warps",
            of_matrix(
                lambda x: (
                    x[:, torch.arange(x.shape[1], device=x.device) % THREADS < 128]
                )
                .square()
                .sum(1)
            ),
            "Only four of the eight warps are in the sums: eight values need offsets "
            "4, 2 and 1.",
        ),
        NearMiss(
            "thread's sum squared",
            of_matrix(lambda x: _by_thread(x).sum(1).square().sum(1)),
            "Each thread squares the sum of its columns: square each element before "
            "it is added.",
        ),
        NearMiss(
            "every warp from column 0",
            of_matrix(_by_each_warp),
            "Columns are counted up to eight times: each warp goes on by 32, over "
            "columns that another warp has too. All 256 threads go on together, by "
            "blockDim.x.",
        ),
        NearMiss(
            "whole stretches only",
            of_matrix(
                lambda x: x[:, : x.shape[1] // THREADS * THREADS].square().sum(1)
            ),
            "The last columns % 256 columns are missing: columns / 256 is rounded "
            "down. Thread t takes columns t, t + 256, … as long as there is one.",
        ),
        NearMiss(
            "one stretch of eight",
            of_matrix(
                lambda x: (
                    x[:, torch.arange(x.shape[1], device=x.device) // THREADS % 8 == 0]
                )
                .square()
                .sum(1)
            ),
            "One column of eight is in the sums: a thread that goes on by 8 * "
            "blockDim.x must take eight, blockDim.x apart.",
        ),
        NearMiss(
            "rounds overlap",
            of_matrix(lambda x: _rounds_overlap(x.square().T, THREADS).sum(0)),
            "Columns are counted up to eight times: a thread that takes eight columns "
            "a round goes on by 8 * blockDim.x.",
        ),
        NearMiss(
            "even warps",
            of_matrix(
                lambda x: (
                    x[:, torch.arange(x.shape[1], device=x.device) // 32 % 2 == 0]
                )
                .square()
                .sum(1)
            ),
            "Only every other warp is in the sums: the last offset is 1.",
        ),
        NearMiss(
            "mean of squares",
            of_matrix(lambda x: x.square().mean(1)),
            "These are means: the sum of the squares is wanted, divided by nothing.",
        ),
        NearMiss(
            "first warp twice",
            of_matrix(_first_warp_twice),
            "The first warp is in the sums twice: its sum is part[0], and thread 0 "
            "still holds it. Begin at part[1], or at 0.",
        ),
        NearMiss(
            "first row for all",
            of_matrix(lambda x: x[:1].square().sum(1).expand(len(x))),
            "Every row has the sum of the first: a block's row begins at x + blockIdx.x"
            " * columns, which the first line calls `row`.",
        ),
        NearMiss(
            "root taken",
            of_matrix(lambda x: x.square().sum(1).sqrt()),
            "These are norms, the roots of what is wanted: leave the root out.",
        ),
    ),
    hints=(
        "Three sums, one inside the other: a thread over its columns, a warp over its "
        "lanes, a block over its warps. You have written the second.",
        "Thread t takes columns t, t + 256, …, so that a warp reads neighbours. Lane 0 "
        "of each warp leaves its sum in part[threadIdx.x / 32]; after a barrier the "
        "first warp adds these eight by shuffles. For speed: eight columns a round, "
        "all loaded before the first is added, as in rung 4.",
        "After the barrier: if (threadIdx.x < 32) { sum = threadIdx.x < 8 ? "
        "part[threadIdx.x] : 0.0f;  three shuffles, offsets 4, 2, 1;  thread 0 writes "
        "out[blockIdx.x]. }",
    ),
    onward="Rows of 64 columns keep three quarters of the block idle. How would you "
    "cut the block?",
    counts=(
        *moves(),
        # Eight sums a block, which at most each warp adds up for itself.
        *shared(32, 256),
        barriers(1, 2),
    ),
    structure=(
        Structure(
            holds=("SHFL",),
            lacks=("RED", "ATOM"),
            message="The values are right. Wanted were shuffles within the warps and "
            "no atomics.",
        ),
    ),
    speed=Speed(
        peer="copy bandwidth",
        case=matrix_case(16384, 8192),
        bytes_moved=lambda case: 4 * case.sizes["rows"] * case.sizes["columns"],
        # A plain loop reaches 0.57 on an H200, eight loads on their way 1.05.
        bands={"bronze": 0.50, "silver": 0.75, "gold": 0.92},
        reads_only=True,
    ),
    shares=SHARES,
)

# --- mean_abs ---------------------------------------------------------------------


def _columns_problem(case: Case, generator: torch.Generator) -> Problem:
    x = draw_matrix(case, generator)
    rows, columns = x.shape
    return Problem(
        {"x": x, "out": None, "rows": rows, "columns": columns},
        {"out": Output((columns,), torch.float32)},
        Launch((max(1, -(-columns // 32)),), (32, 32)),
    )


def _by_row_of_threads(x: torch.Tensor) -> torch.Tensor:
    """Return (rows of a thread, 32, columns), zeros past the last row."""
    rounds = max(1, -(-len(x) // 32))
    return pad(x, (0, 0, 0, rounds * 32 - len(x))).view(rounds, 32, x.shape[1])


def _tile_by_rows(x: torch.Tensor) -> torch.Tensor:
    """Add up rows of the tile, one thread row's sums of 32 columns."""
    sums = _by_row_of_threads(x.abs()).sum(0)
    tiles = -(-x.shape[1] // 32)
    blocks = pad(sums, (0, -x.shape[1] % 32)).view(32, tiles, 32).sum(2)
    return blocks.T.flatten()[: x.shape[1]] / len(x)


def _read_by_columns(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(x.shape[1], x.shape[0]).abs().mean(1)


MEAN_ABS = Exercise(
    id="mean_abs",
    stem=STEM,
    title="Mean magnitudes down the columns",
    kind="core",
    points=20,
    language="cuda",
    entry="kernel",
    name="mean_abs",
    source="solutions/reduction/columns.cu",
    goal="Average the magnitudes of each column of a matrix, with coalesced loads.",
    requirements=(
        "Blocks of 32 x 32 threads; block b has columns 32 * b to 32 * b + 31, those "
        "that exist.",
        "`out[c]` is the sum of |x| down column c, divided by the number of rows; NaN "
        "where there are none.",
        "At most 4.5 sectors and one wavefront per request, and one barrier.",
    ),
    problem=_columns_problem,
    reference=of_matrix(lambda x: x.abs().mean(0)),
    cases=(
        matrix_case(96, 64),
        matrix_case(100, 33),
        matrix_case(31, 70),
        matrix_case(257, 5),
        matrix_case(1, 40),
        matrix_case(0, 3),
        matrix_case(5, 0),
        matrix_case(300, 20, "shifted"),
        matrix_case(70, 50, "special"),
    ),
    hidden=hidden_matrices,
    # Magnitudes have one sign; the division's own eps/2 is within the factor.
    tolerance=tolerance_along("rows", lambda x: x.abs().sum(0) / max(1, len(x))),
    near_misses=(
        # Before the sums: where there are no rows, these are 0 as well.
        NearMiss(
            "no rows",
            of_matrix(
                lambda x: x.abs().mean(0) if len(x) else torch.zeros_like(x.sum(0))
            ),
            "A matrix of no rows has 0 as its means: that would look like a result. "
            "There is none: 0 / 0 is NaN, and NaN is wanted.",
        ),
        NearMiss(
            "not divided",
            of_matrix(lambda x: x.abs().sum(0)),
            "These are sums: divide each by the number of rows.",
        ),
        NearMiss(
            "divided by columns",
            of_matrix(lambda x: x.abs().sum(0) / x.shape[1]),
            "The sums are divided by `columns`; a column has `rows` elements.",
        ),
        NearMiss(
            "signs kept",
            of_matrix(lambda x: x.mean(0)),
            "These are means of x, in which signs cancel: add fabsf(x).",
        ),
        NearMiss(
            "magnitude afterwards",
            of_matrix(lambda x: x.mean(0).abs()),
            "This is the magnitude of the mean: take fabsf of each element before it "
            "is added.",
        ),
        NearMiss(
            "first rows only",
            of_matrix(lambda x: x[:32].abs().sum(0) / x.shape[0]),
            "Only the first 32 rows are in the sums: a thread goes on to row "
            "threadIdx.y + 32, + 64, and so on.",
        ),
        NearMiss(
            "half of the rows",
            of_matrix(
                lambda x: (
                    x[torch.arange(len(x), device=x.device) % 32 < 16].abs().sum(0)
                    / len(x)
                )
            ),
            "Only 16 of the 32 rows of threads are in the sums: the first offset is "
            "16, half a warp.",
        ),
        NearMiss(
            "rounds overlap",
            of_matrix(lambda x: _rounds_overlap(x.abs(), 32).sum(0) / len(x)),
            "Rows are counted up to eight times: a thread that takes eight rows a "
            "round goes on by 8 * 32.",
        ),
        NearMiss(
            "one row less",
            of_matrix(lambda x: x.abs().sum(0) / x.new_tensor(len(x) - 1)),
            "The sums are divided by rows - 1: a mean over `rows` elements is wanted.",
        ),
        NearMiss(
            "one row of threads",
            of_matrix(lambda x: x[::32].abs().sum(0) / x.shape[0]),
            "Only rows 0, 32, 64, … are in the sums: what the other 31 rows of threads "
            "have must be added to it.",
        ),
        NearMiss(
            "tile by rows",
            of_matrix(_tile_by_rows),
            "Each sum is over 32 columns, and not over 32 rows of threads: a warp adds "
            "a column of the tile, tile[threadIdx.x][threadIdx.y].",
        ),
        NearMiss(
            "read by columns",
            of_matrix(_read_by_columns),
            "x is read as if its columns lay side by side: element (row, column) is "
            "x[row * columns + column].",
        ),
        NearMiss(
            "thread's magnitude",
            of_matrix(lambda x: _by_row_of_threads(x).sum(0).abs().sum(0) / len(x)),
            "Each thread takes the magnitude of its sum, in which signs have cancelled "
            "already: add fabsf of each element.",
        ),
        NearMiss(
            "divided by 32",
            of_matrix(lambda x: x.abs().sum(0) / 32),
            "The sums are divided by 32, the rows of threads; a column has `rows` "
            "elements.",
        ),
        NearMiss(
            "whole numbers divided",
            of_matrix(lambda x: x.abs().sum(0) * (1 // max(1, len(x)))),
            "All means are 0: 1 / rows divides whole numbers, and rounds down to 0. "
            "Divide the sum, a float, by rows.",
        ),
    ),
    hints=(
        "Lanes beside each other must read beside each other: along a row. So the 32 "
        "sums of one column end up in 32 different warps. How do they come together?",
        "Each thread goes down its column, every 32nd row (several loads before the "
        "first addition), and leaves its sum in a tile. After one barrier warp w takes "
        "column w of the tile, and shuffles. Chapter 2 knows how to read a column "
        "without conflicts.",
        "__shared__ float tile[32][33];  tile[threadIdx.y][threadIdx.x] = sum; "
        "barrier;  sum = tile[threadIdx.x][threadIdx.y];  five shuffles;  the thread "
        "with threadIdx.x == 0 writes column blockIdx.x * 32 + threadIdx.y, if it "
        "exists, divided by rows.",
    ),
    onward="A matrix of 32 columns and a million rows is one block's work. Cut it.",
    counts=(*moves(), *shared(64, 64), barriers(1)),
    structure=(
        Structure(
            lacks=("RED", "ATOM"),
            message="The values are right, and made by atomics: let each warp add one "
            "column's sums instead.",
        ),
    ),
    speed=Speed(
        peer="copy bandwidth",
        case=matrix_case(16384, 8192),
        bytes_moved=lambda case: 4 * case.sizes["rows"] * case.sizes["columns"],
        # Eight loads on their way reach 1.02 on an H200.
        bands={"bronze": 0.50, "silver": 0.75, "gold": 0.92},
        reads_only=True,
    ),
    shares=SHARES,
)
