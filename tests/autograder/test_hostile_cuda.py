"""Hostile and broken answers in CUDA C++: each ends in its own line.

``grade_both`` proves after each of them that the next exercise is still graded.
"""

from __future__ import annotations

import pytest
from hostile import GradeBoth, fails
from small_exercises import (
    KERNEL,
    RIGHT_KERNEL,
    make_exercise,
)

from autograder.exercise import Count, Structure
from autograder.ideals import needed
from autograder.judge.judge import Judge
from autograder.submission.submitted import Cells

SYNTAX = RIGHT_KERNEL.replace("2 * x[i];", "2 * x[i]")
LOOP = RIGHT_KERNEL.replace("out[i] =", "while (true) out[i] =")
WILD = RIGHT_KERNEL.replace("out[i] =", "*(float*)8 =")
SEGFAULT = RIGHT_KERNEL.replace("out[i] =", "((float*)x)[1ll << 44] =")


def test_the_right_kernel_passes(grade_both: GradeBoth) -> None:
    assert grade_both(RIGHT_KERNEL, KERNEL).passed


def test_a_syntax_error_in_cuda(grade_both: GradeBoth) -> None:
    result = grade_both(SYNTAX, KERNEL)
    fails(result, "line 6")
    assert result.words == "does not compile"
    assert result.gates[0].detail["diagnostics"]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("doubled(", "double_it(", "the cell defines no 'doubled'"),
        ("float* out, int n", "double* out, int n", "float64"),
        ("float* out, int n", "float* out", "n"),
        ("if (i < n)", "if (i <= n)", "it writes outside of out, past its last"),
        ("if (i < n)", "if (i < n && i != 32)", "out[32] was never written"),
        ("2 * x[i]", "x[i]", "This is x, not 2 * x."),
        ("2 * x[i]", "2 * x[i] + (i == 5)", "Block 0, thread 5 wrote it."),
        ("out[i] = ", "((float*)x)[i] = out[i] = ", "it changes its input x"),
    ],
)
def test_kernels_that_are_wrong(
    grade_both: GradeBoth, old: str, new: str, words: str
) -> None:
    fails(grade_both(RIGHT_KERNEL.replace(old, new), KERNEL), words)


def test_what_was_read_out_of_bounds_is_compared_with_no_mistake(
    grade_both: GradeBoth,
) -> None:
    astray = RIGHT_KERNEL.replace("2 * x[i]", "x[i] + 0 * x[i + 8]")
    result = grade_both(astray, KERNEL)
    fails(result, "out of bounds, line 6")
    assert "This is x" not in result.message


def test_a_kernel_that_does_not_end(grade_both: GradeBoth) -> None:
    result = grade_both(LOOP, KERNEL)
    fails(result, "line 6", "timeout")


@pytest.mark.parametrize("cell", [WILD, SEGFAULT], ids=["null", "wild"])
def test_a_kernel_with_a_wild_access(grade_both: GradeBoth, cell: str) -> None:
    result = grade_both(cell, KERNEL)
    assert result.status in ("failed", "crashed") and result.earned == 0.0
    assert "line 6" in result.message or "memory" in result.message


def test_cuda_text_that_ends_the_process(grade_both: GradeBoth) -> None:
    cell = RIGHT_KERNEL.replace("__global__", "#include <unistd.h>\n__global__")
    cell = cell.replace("out[i] =", "_exit(0); out[i] =")
    fails(grade_both(cell, KERNEL), "ended its own process", "crashed")


def test_cuda_text_that_runs_while_it_is_loaded(grade_both: GradeBoth) -> None:
    cell = RIGHT_KERNEL.replace(
        "__global__",
        "#include <stdlib.h>\nstatic int early = (_Exit(0), 1);\n__global__",
    )
    result = grade_both(cell, KERNEL)
    assert not result.passed and result.earned == 0.0


EARLY = r"""
#ifndef __CUDACC_RTC__
#include <unistd.h>
static int speak() {
    const char text[] = "{\"ok\": true, \"blobs\": [27]}/*0000*/   LDG.E.128 R1 ;";
    const unsigned char size[] = {27, 0, 0, 0};
    write(101, size, 4);
    write(101, text, sizeof text - 1);
    return 1;
}
static int early = speak();
#endif
"""


def test_a_kernel_cannot_forge_its_machine_code(judge: Judge) -> None:
    """What runs when a library is loaded must not speak for the compiler."""
    cell = RIGHT_KERNEL.replace("__global__", EARLY + "__global__", 1)
    wants = Structure(holds=("LDG.E.128",), message="No 128-bit load.")
    exercise = make_exercise("doubled", "cuda", structure=(wants,))
    result = judge.grade(exercise, Cells({"doubled": cell}))
    assert not result.passed and result.earned == 0.0


@pytest.mark.parametrize(
    ("above", "says"),
    [
        ("#include <vector>", "vector"),
        ("float twice(float v) { return 2 * v; }", "Write __device__ in front of a"),
        (
            'extern "C" int PyRun_SimpleString(const char*);'
            'struct Early { Early() { PyRun_SimpleString("1"); } } early;',
            "host variables are not allowed",
        ),
    ],
    ids=["a header of the host's", "no __device__", "code that is run at load"],
)
def test_what_only_the_emulator_compiles_is_no_cuda(
    judge: Judge, above: str, says: str
) -> None:
    """The host's compiler takes what a GPU's does not, and runs it."""
    cell = RIGHT_KERNEL.replace("__global__", f"{above}\n__global__")
    cell = cell.replace("2 * x[i]", "twice(x[i])") if "twice" in above else cell
    result = judge.grade(KERNEL, Cells({"doubled": cell}))
    compiled = result.gate("structure")
    if compiled is not None and compiled.status == "not checked":
        pytest.skip("there is no NVRTC here")
    fails(result, "compiled for sm_90: cell.cu does not compile")
    assert result.words == "does not compile for a GPU"
    assert "line 3" in result.message and says in result.message, result.message


ALONE = """%%cuda
// exercise: doubled
__global__ void doubled(const float* x, float* out, int n) {
    int first = 32 * blockIdx.x;
    for (int i = first; threadIdx.x == 0 && i < min(n, first + 32); ++i) {
        out[i] = 2 * x[i];
    }
}
"""


@pytest.mark.parametrize(
    ("count", "says"),
    [
        (
            Count("requests", "global", "load", times=1.9),
            "line 6: the global loads take 33 requests in all, 16.5 times the ideal 2",
        ),
        (
            Count("wavefronts", "shared", "load", ideal=1, at_least=1),
            "The trace saw no shared loads: the values are to pass through shared",
        ),
    ],
    ids=["few sectors", "not asked of anybody"],
)
def test_one_thread_that_does_it_all_has_no_ideal_counts(
    judge: Judge, count: Count, says: str
) -> None:
    exercise = make_exercise("doubled", "cuda", counts=(count,))
    result = judge.grade(exercise, Cells({"doubled": ALONE}))
    assert result.words == "correct, moves too much" and result.earned == 7.5
    assert says in result.message, result.message


SHUFFLED = """%%cuda
// exercise: doubled
__global__ void doubled(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = i < n ? 2 * x[i] : 0.0f;
    CONDITION v = __shfl_sync(0xffffffff, v, threadIdx.x);
    if (i < n) out[i] = v;
}
"""
SHUFFLES = Structure(holds=("SHFL",), message="Add by shuffles.")


@pytest.mark.parametrize("condition", ["", "if (n < 0)"], ids=["runs", "never runs"])
def test_an_instruction_that_never_runs_is_none(judge: Judge, condition: str) -> None:
    exercise = make_exercise("doubled", "cuda", structure=(SHUFFLES,))
    cell = SHUFFLED.replace("CONDITION", condition)
    result = judge.grade(exercise, Cells({"doubled": cell}))
    compiled = result.gate("structure")
    if compiled is not None and compiled.status == "not checked":
        pytest.skip("there is no NVRTC here")
    if not condition:
        assert result.passed, result.message
        return
    fails(result, "holds SHFL, and no thread came to it. Add by shuffles.")
    assert result.earned == 0.0


def test_fewer_shuffles_than_the_work_has_cost_the_counts(judge: Judge) -> None:
    exercise = make_exercise("doubled", "cuda", counts=(needed("shuffles", 40),))
    result = judge.grade(exercise, Cells({"doubled": RIGHT_KERNEL}))
    assert result.words == "correct, moves too much" and result.earned == 7.5
    assert (
        "A block's warps shuffle 0 times, and at least 40 earn the points"
        in result.message
    )
