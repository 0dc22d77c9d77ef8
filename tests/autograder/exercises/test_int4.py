"""Chapter 13: unusual answers that are right, and some that keep too few bits."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

import pytest
from edited import graded

from autograder.exercise import Exercise
from autograder.exercises.int4 import EXERCISES
from autograder.judge.judge import Judge
from autograder.regions import cell_source

BY_ID = {exercise.id: exercise for exercise in EXERCISES}
GEMV, GEMM, FILE = (BY_ID[n] for n in ("int4_gemv", "int4_gemm", "mmap_weights"))


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge(seed=5, device="cpu") as made:
        yield made


def body(exercise: Exercise, after: str, new: str) -> tuple[str, str]:
    """Return the edit that puts a body in the place of all behind a line."""
    cell = cell_source(exercise, solved=True)
    return cell[cell.index(after) :], textwrap.dedent(new)


# The sum of codes times x, less 8 times the sum of x.
EIGHT_AT_THE_END = (
    "sum += (first - 8) * x.x + (second - 8) * x.y;",
    "sum += first * x.x + second * x.y; sum -= 8 * (x.x + x.y);",
)
# 1024 + code is a half that the code's bits make; exact, as is what 1032 leaves of it.
BY_AN_OR = (
    "int first = word & 15, second = word >> 4 & 15;",
    """unsigned bits = 0x64006400 | (word & 15) | (word >> 4 & 15) << 16;
        float2 both = __half22float2(reinterpret_cast<half2&>(bits));
        float first = both.x - 1024, second = both.y - 1024;""",
)
IN_THE_LAST_LANE = (
    ("__shfl_down_sync", "__shfl_xor_sync"),
    ("if (lane == 0)", "if (lane == 31)"),
)
# A row for each half of a warp, in half of the warps.
HALF_WARPS = (
    ("int lane = threadIdx.x % 32;", "int lane = threadIdx.x % 16;"),
    ("threadIdx.x / 32;", "threadIdx.x / 16;"),
    (
        "if (row >= rows) return;",
        """if (threadIdx.x >= 128 || rows == 0) return;
    bool mine = row < rows;
    row = min(row, rows - 1);""",
    ),
    ("i += 32", "i += 16"),
    ("int step = 16", "int step = 8"),
    ("if (lane == 0)", "if (lane == 0 && mine)"),
)
# Two rows a warp, in half of the warps: each load of x serves both.
TWO_ROWS = """\
int lane = threadIdx.x % 32;
    int row = blockIdx.x * 8 + threadIdx.x / 32;
    if (row >= rows || row % 2) return;
    int loads = columns / 32, below = min(row + 1, rows - 1);
    const uint4* numbers = reinterpret_cast<const uint4*>(x);
    float sum[2] = {};
    for (int i = lane; i < loads; i += 32) {
        uint4 four[2] = {words[row * loads + i], words[below * loads + i]};
        uint4 of_x[4] = {numbers[4 * i], numbers[4 * i + 1], numbers[4 * i + 2],
                         numbers[4 * i + 3]};
        for (int r = 0; r < 2; ++r) {
            float part = eight_products(four[r].x, of_x[0]) +
                         eight_products(four[r].y, of_x[1]) +
                         eight_products(four[r].z, of_x[2]) +
                         eight_products(four[r].w, of_x[3]);
            sum[r] += __half2float(scales[((row + r < rows ? row + r : row) *
                                           loads + i) / 4]) * part;
        }
    }
    for (int step = 16; step > 0; step /= 2) {
        for (int r = 0; r < 2; ++r)
            sum[r] += __shfl_down_sync(0xffffffff, sum[r], step);
    }
    if (lane == 0) {
        out[row] = __float2half(sum[0]);
        if (row + 1 < rows) out[row + 1] = __float2half(sum[1]);
    }
}
"""


@pytest.mark.parametrize(
    "edits",
    [
        (EIGHT_AT_THE_END,),
        (BY_AN_OR,),
        IN_THE_LAST_LANE,
        HALF_WARPS,
        (body(GEMV, "int lane = threadIdx.x % 32;", TWO_ROWS),),
    ],
    ids=[
        "eight at the end",
        "by an or",
        "in the last lane",
        "half a warp a row",
        "two rows a warp",
    ],
)
def test_a_row_may_be_added_up_in_other_ways(judge, edits):
    assert graded(judge, GEMV, *edits) == ""


def test_a_row_added_up_in_pairs_of_halves_is_too_rough(judge):
    edit = (
        "sum += (first - 8) * x.x + (second - 8) * x.y;",
        """half2 two = __hmul2(__floats2half2_rn(first - 8, second - 8),
                            reinterpret_cast<half2&>(pair));
        sum += __half2float(__hadd(__low2half(two), __high2half(two)));""",
    )
    assert graded(judge, GEMV, edit).startswith("right")


# Words of a tile in any order, with the numbers of x that belong to each.
BACKWARDS = ("half < 4; ++half", "half >= 0; --half"), ("int half = 0", "int half = 3")
LOADED_AHEAD_NO_MORE = (
    ("uint4 held[2] = {next[0], next[1]};", ""),
    (
        "if (coming < groups) {",
        "uint4 held[2] = {mine[64 * group], mine[64 * group + 32]}; if (false) {",
    ),
    ("if (group < groups) {", "if (false) {"),
)
EXCHANGED_WARPS = (
    ("own = row + warp % 2 * 16", "own = row + warp / 4 * 16"),
    ("int group = warp / 2;", "int group = warp % 4;"),
    ("int w = r / 16; w < WARPS; w += 2", "int i = 0, w = r / 16 * 4; i < 4; ++i, ++w"),
)
BY_ZEROS = (
    (
        "return x + min(token + which, tokens - 1) * columns + 16 * t;",
        """return token + which < tokens
                   ? x + (token + which) * columns + 16 * t
                   : nullptr;""",
    ),
    (
        "*reinterpret_cast<const uint4*>(of_token[j] + column);",
        """of_token[j] ? *reinterpret_cast<const uint4*>(of_token[j] + column)
                                : uint4{};""",
    ),
)


@pytest.mark.parametrize(
    "edits",
    [BACKWARDS, LOADED_AHEAD_NO_MORE, EXCHANGED_WARPS, BY_ZEROS],
    ids=["backwards", "loaded ahead no more", "exchanged warps", "zeros past the last"],
)
def test_fragments_may_be_multiplied_in_other_ways(judge, edits):
    assert graded(judge, GEMM, *edits) == ""


def test_weights_rounded_with_their_scale_are_too_rough(judge):
    edits = (
        ("const __half* scale = scales + group * rows + own + g;", ""),
        ("float upper = __half2float(scale[0]);", "float upper = 1.0f;"),
        ("float lower = __half2float(scale[8]);", "float lower = 1.0f;"),
        (
            "float part[2][4] = {};",
            """float part[2][4] = {};
        const __half* scale = scales + group * rows + own + g;
        const __half2 by[2] = {__half2half2(scale[0]), __half2half2(scale[8])};""",
        ),
        ("four.z : four.x, zero, first", "four.z : four.x, zero, by, first"),
        ("four.w : four.y, zero, second", "four.w : four.y, zero, by, second"),
    )
    assert graded(judge, GEMM, *edits).startswith("right")


MAPPED = "whole = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)"
FLAT = """torch.frombuffer(
            whole, dtype=dtype, count=rows * columns, offset=offset
        )"""


@pytest.mark.parametrize(
    "edits",
    [
        ((MAPPED, "import numpy; whole = numpy.memmap(path, mode='c')"),),
        (
            (MAPPED, "whole = torch.from_file(path, False, length, dtype=torch.uint8)"),
            (FLAT, "whole[offset:][: rows * columns * dtype.itemsize].view(dtype)"),
        ),
        (
            (MAPPED, "whole = torch.UntypedStorage.from_file(path, False, length)"),
            (
                FLAT,
                "torch.empty(0, dtype=dtype).set_("
                "whole, offset // dtype.itemsize, (rows * columns,))",
            ),
        ),
    ],
    ids=["numpy", "torch", "a storage"],
)
def test_a_file_may_be_mapped_in_other_ways(judge, edits):
    assert graded(judge, FILE, *edits) == ""
