"""Right answers that do the work several times lose the counts, and are told of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import copy
from dataclasses import replace

import pytest
from wasteful import by_blocks, by_programs, by_threads

from autograder.exercise import Count, Exercise
from autograder.exercises import all_exercises
from autograder.judge import gates
from autograder.judge.judge import Judge
from autograder.judge.kinds.cuda import CudaKernel
from autograder.judge.kinds.python import PythonFunction
from autograder.judge.kinds.triton import TritonFunction
from autograder.judge.results import Gate, Result
from autograder.judge.trial import Deadlines
from autograder.judge.values import cases_of, draw
from autograder.regions import cell_source
from autograder.submission.submitted import Cells
from autograder.worker.traced import WHOLE_THREADS

EXERCISES = all_exercises()
SEED = 20_261_121

# Kernels whose threads need no other.
ALONE = [
    *("add_one", "vector_add", "saxpy_grid_stride", "scale_offset"),
    *("vector_add_vec4", "copy_coalesced", "welford_combine"),
    *("matmul_naive", "matmul_coalesced"),
]
# One block alone has nobody to repeat; sum_all counts the blocks that have come.
NOT_BY_BLOCKS = {
    *("swizzle", "weigh_rows", "sum_all", "expert_offsets", "one_shot_all_reduce"),
}
# The kernel is the course's own, or adds with atomics what may be added once; or it is
# printed, and no program of Triton's; or a model's positions are counted.
NOT_BY_PROGRAMS = {
    *("absorb_tile", "tile_gradients", "flash_backward", "fuser", "generate"),
}
BLOCKS = [
    e.id
    for e in EXERCISES.values()
    if e.counts and e.language == "cuda" and e.id not in NOT_BY_BLOCKS
]
PROGRAMS = [
    e.id
    for e in EXERCISES.values()
    if e.counts and e.language == "python" and e.entry == "function"
    if e.id not in NOT_BY_PROGRAMS
]


@pytest.fixture(scope="module")
def patient(judge: Judge) -> Judge:
    """The shared judge's workers with a grade's own deadlines, and public cases."""
    made = copy(judge)
    made.deadlines, made.public = Deadlines(), True
    return made


def mend(name: str) -> str:
    """Say what an exercise wants whose counts let work be done several times."""
    many = "blocks" if EXERCISES[name].language == "cuda" else "programs"
    return (
        f"{name}: no count notices that several {many} write one element. Add "
        f"Count('writers', ideal=1) to its counts, or its id to NOT_BY_{many.upper()} "
        "if one alone does it all."
    )


def graded(judge: Judge, exercise: Exercise, cell: str) -> Result:
    """Grade a cell beside the answers that the exercise needs."""
    needed = {
        name: cell_source(EXERCISES[name], solved=True) for name in exercise.needs
    }
    return judge.grade(exercise, Cells({**needed, exercise.id: cell}))


@pytest.fixture
def counted(
    patient: Judge, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, str], str]:
    """Return what the counts say of an answer; its values are the exercise's own."""

    def count(name: str, cell: str) -> str:
        exercise = EXERCISES[name]
        case = exercise.cases[exercise.counted]
        passed = Gate("right", "passed")
        monkeypatch.setattr(gates, "_right", lambda *a: passed)
        for kind in (CudaKernel, TritonFunction, PythonFunction):
            monkeypatch.setattr(kind, "structure", lambda *a: passed)
        alone = replace(exercise, cases=(case,), counted=0)
        result = graded(patient, alone, cell)
        counts = result.gate("counts")
        unnoticed = f"{mend(name)} The grade: {result.message}"
        assert counts is not None and counts.status == "failed", unnoticed
        assert result.earned < result.possible
        return counts.message

    return count


# A whole product by each of 6,144 threads would take minutes.
@pytest.mark.parametrize("name", [n for n in ALONE if not n.startswith("matmul")])
def test_every_thread_does_it_all(
    counted: Callable[[str, str], str], name: str
) -> None:
    said = counted(name, by_threads(EXERCISES[name], "all"))
    assert "threads" in said and " writes all " in said and "times the ideal" in said


@pytest.mark.parametrize("name", ALONE)
def test_each_pair_is_written_twice(
    counted: Callable[[str, str], str], name: str
) -> None:
    said = counted(name, by_threads(EXERCISES[name], "pairs"))
    # Of the first element's two the one is the last block's last.
    assert "each of 2 threads writes" in said or "each of 2 blocks writes" in said


@pytest.mark.parametrize("name", BLOCKS)
def test_every_block_does_it_all(counted: Callable[[str, str], str], name: str) -> None:
    said = counted(name, by_blocks(EXERCISES[name], "all"))
    assert "blocks writes" in said, f"{mend(name)} The counts: {said}"


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_overlap(counted: Callable[[str, str], str], name: str) -> None:
    said = counted(name, by_blocks(EXERCISES[name], "pairs"))
    overlap = "each of 2 blocks writes" in said or "threads of 2 blocks writes" in said
    assert overlap, f"{mend(name)} The counts: {said}"


@pytest.mark.parametrize("rounds", ["all", "pairs"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_do_the_same(
    counted: Callable[[str, str], str], name: str, rounds: str
) -> None:
    pytest.importorskip("triton")
    said = counted(name, by_programs(EXERCISES[name], rounds))
    assert "programs writes" in said, f"{mend(name)} The counts: {said}"


LINES = ("c = tl", "inside =", "x = tl", "weight =", "out = weight", "tl.store")
ONE_FOR_ALL = [
    ("    row = tl.program_id(0).to(tl.int64)",
     "    rows = tl.num_programs(0)\n    if tl.program_id(0) > 0:\n        rows = 0\n"
     "    for row in range(0, rows):"),
    *((f"    {line}", f"        {line}") for line in LINES),
]  # fmt: skip
ADD = """    for first in range(0, n, BLOCK):
        i = first + tl.arange(0, BLOCK)
        inside = i < n
        x = tl.load(x_ptr + i, mask=inside)
        y = tl.load(y_ptr + i, mask=inside)
        tl.store(out_ptr + i, x + y, mask=inside)
"""


@pytest.mark.parametrize(
    ("name", "edits", "says"),
    [
        ("absorb_tile", [("p.to(v.dtype), v", "p, v.to(tl.float32)")],
         "2,097,152 multiply-adds of operands wider than 16 bits"),
        ("absorb_tile", [("tl.dot(p.to(v.dtype), v)",
                          "tl.sum(p[:, :, None] * v.to(tl.float32)[None, :, :], 1)")],
         "2,097,152 multiply-adds of tl.dot; the ideal is 4,194,304, and at least"),
        ("flash_triton", [("range(0, n, COLS)", "range(0, n + COLS, COLS)")],
         "6,291,456 multiply-adds of tl.dot; the ideal is 4,194,304 (at most"),
        ("vector_add_triton", [("(programs,)", "(1,)"), ("    first = tl", ADD + "#")],
         "The busiest program moves 49,176 bytes, where one's share is 12,288"),
        ("softmax_triton", ONE_FOR_ALL,
         "The busiest program moves 32,768 bytes, where one's share is 4,096"),
    ],
)  # fmt: skip
def test_what_programs_do_is_counted(
    counted: Callable[[str, str], str], name: str, edits: list[tuple[str, str]],
    says: str,
) -> None:  # fmt: skip
    pytest.importorskip("triton")
    cell = cell_source(EXERCISES[name], solved=True)
    for old, new in edits:
        assert old in cell
        cell = cell.replace(old, new)
    assert says in counted(name, cell)


XOR = ("__shfl_down_sync", "__shfl_xor_sync")
HALVED = ("i += {}", "i += {} / 2")


@pytest.mark.parametrize(
    ("name", "edits", "says"),
    [
        (
            "block_sum",
            [("if (t == 0) {\n        out[blockIdx.x] = part[0];\n    }",
              "out[blockIdx.x] = part[0];")],
            "each of 256 threads writes out[0]",
        ),
        ("warp_sum", [XOR, ("threadIdx.x % 32 == 0", "true")],
         "each of 32 threads writes out[0]"),
        ("sum_squared", [XOR, ("offset = 4", "offset = 16"),
                         ("threadIdx.x == 0", "true")],
         "each of 32 threads writes out[0]"),
        ("mean_abs", [XOR, ("threadIdx.x == 0 && ", "")],
         "each of 32 threads writes out[0]"),
        ("lost_lanes", [("threadIdx.x == 0", "true"),
                        ("for (int warp = 1", "total = totals[0]; for (int warp = 1")],
         "each of 256 threads writes out[0]"),
        ("sum_all", [XOR, ("if (threadIdx.x == 0) {\n            out",
                           "if (threadIdx.x < 32) {\n            out")],
         "each of 32 threads writes out[0]"),
        ("vector_add_vec4",
         [("int last = 4 * whole + thread;\n    if (last < n) {",
           "for (int last = 4 * whole; last < n; ++last) {")],
         "threads of 2 blocks writes out[1024]"),
        ("saxpy_grid_stride", [("i += stride", "i += stride / 2")],
         "each of 2 blocks writes out[48]"),
        ("scale_offset", [("i += threads", "i += threads / 2")],
         "each of 2 blocks writes out[48]"),
        ("softmax_long_rows", [("maximum_ptr + at, maximum",
                                "maximum_ptr + at + 0 * c, maximum")],
         "each of 4,096 lanes of a program writes maximum_ptr[0]"),
        ("softmax_triton", [("row = tl.program_id(0)", "row = 0 * tl.program_id(0)")],
         "each of 8 programs writes out_ptr[0]"),
    ],
)  # fmt: skip
def test_one_element_has_several_writers(
    counted: Callable[[str, str], str],
    name: str,
    edits: list[tuple[str, str]],
    says: str,
) -> None:
    cell = cell_source(EXERCISES[name], solved=True)
    for old, new in edits:
        assert old in cell
        cell = cell.replace(old, new)
    assert says in counted(name, cell)


def test_one_thread_in_each_block_is_told_as_blocks(
    counted: Callable[[str, str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    exercise = EXERCISES["block_sum"]
    stored = (Count("bytes", "global", "store"),)
    monkeypatch.setitem(EXERCISES, exercise.id, replace(exercise, counts=stored))
    own = "out[blockIdx.x] = part[0];"
    cell = cell_source(exercise, solved=True)
    assert own in cell
    said = counted(
        exercise.id,
        cell.replace(own, "for (int b = 0; b < gridDim.x; ++b) out[b] = 0.0f;"),
    )
    assert "blocks writes all" in said and "threads" not in said


FOURS = """%%cuda
// exercise: sum_squared
__global__ void sum_squared(const float* x, float* out, int columns) {
    const float* row = x + (long long)blockIdx.x * columns;
    __shared__ float part[8];
    float sum = 0.0f;
    int whole = (reinterpret_cast<size_t>(row) % 16 == 0) ? columns / 4 : 0;
    for (int c = threadIdx.x; c < whole; c += blockDim.x) {
        float4 v = reinterpret_cast<const float4*>(row)[c];
        sum += (v.x * v.x + v.y * v.y) + (v.z * v.z + v.w * v.w);
    }
    for (int c = 4 * whole + threadIdx.x; c < columns; c += blockDim.x) {
        sum += row[c] * row[c];
    }
    for (int offset = 16; offset > 0; offset /= 2)
        sum += __shfl_down_sync(0xffffffff, sum, offset);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = threadIdx.x < 8 ? part[threadIdx.x] : 0.0f;
        for (int offset = 4; offset > 0; offset /= 2)
            sum += __shfl_down_sync(0xffffffff, sum, offset);
        if (threadIdx.x == 0) out[blockIdx.x] = sum;
    }
}
"""
SHUFFLES_FIRST = """%%cuda
// exercise: block_sum
__global__ void block_sum(const float* x, float* out, int n) {
    __shared__ float part[8];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    float sum = i < n ? x[i] : 0.0f;
    for (int offset = 16; offset > 0; offset /= 2)
        sum += __shfl_down_sync(0xffffffff, sum, offset);
    if (t % 32 == 0) part[t / 32] = sum;
    __syncthreads();
    if (t < 32) {
        sum = t < blockDim.x / 32 ? part[t] : 0.0f;
        for (int offset = 16; offset > 0; offset /= 2)
            sum += __shfl_down_sync(0xffffffff, sum, offset);
        if (t == 0) out[blockIdx.x] = sum;
    }
}
"""
A_BY_SHUFFLES = """%%cuda
// exercise: matmul_coalesced
__global__ void matmul_coalesced(const float* a, const float* b, float* c,
                                 int m, int n, int k) {
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    int lane = threadIdx.x;
    if (row >= m) return;
    float sum = 0.0f;
    for (int first = 0; first < k; first += 32) {
        float mine = first + lane < k ? a[row * k + first + lane] : 0.0f;
        for (int i = 0; i < min(32, k - first); ++i) {
            float left = __shfl_sync(0xffffffff, mine, i);
            if (column < n) sum += left * b[(first + i) * n + column];
        }
    }
    if (column < n) c[row * n + column] = sum;
}
"""
BY_REDUCE = """%%cuda
// exercise: warp_sum
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;

__global__ void warp_sum(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    float sum = cg::reduce(warp, i < n ? x[i] : 0.0f, cg::plus<float>());
    if (warp.thread_rank() == 0) out[i / 32] = sum;
}
"""


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("sum_squared", FOURS),
        ("block_sum", SHUFFLES_FIRST),
        ("matmul_coalesced", A_BY_SHUFFLES),
        ("warp_sum", BY_REDUCE),
    ],
)
def test_what_moves_less_than_the_ideal_earns_all(
    patient: Judge, name: str, cell: str
) -> None:
    result = graded(patient, EXERCISES[name], cell)
    assert result.passed and result.earned == result.possible, result.message


@pytest.mark.parametrize("name", BLOCKS)
def test_what_is_counted_is_traced_whole(name: str) -> None:
    exercise = EXERCISES[name]
    case, purpose = list(cases_of(exercise, SEED, public=True))[exercise.counted]
    launch = draw(exercise, case, SEED, purpose).launch
    assert launch is not None
    assert math.prod((*launch.grid, *launch.block)) <= WHOLE_THREADS
