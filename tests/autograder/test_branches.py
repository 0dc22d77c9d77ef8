"""Cells that ask which compiler they are: another program on a GPU than here."""

from __future__ import annotations

import pytest
from small_exercises import KERNEL, RIGHT_KERNEL

from autograder.exercises import all_exercises
from autograder.judge.branches import two_programs, with_defaults
from autograder.judge.judge import Judge
from autograder.languages import code_of
from autograder.submission.submitted import Cells, References

ASKS = {
    "ifdef": "#ifdef __CUDACC_RTC__\n#endif",
    "the trace": "int a;\n#ifndef KWEMU_TRACED\n#endif",
    "if": "#if defined(__CUDACC__) || defined(__NVCC__)\n#endif",
    "elif": "#if 0\n#elif __CUDA_ARCH__ == 900\n#endif",
    "a header's name": "#include <stdio.h>\n#ifdef EOF\n#endif",
    "a header": "#if __has_include(<unistd.h>)\n#endif",
    "later": "#ifdef MINE\n#endif\n#define MINE",
    "through another": "#define MINE __CUDACC_RTC__\n#if MINE\n#endif",
    "spliced": "#if\\\ndef __GNUC__\n#endif",
    "digraph": "%:ifdef __GNUC__\n%:endif",
    "spaced": "  #  ifdef\t__GNUC__\n#endif",
    "behind a comment": "/* x */ #ifdef __GNUC__\n#endif",
    "a value": "constexpr bool here = __CUDA_ARCH__ == 800;",
    "a text": "#define TEXT(x) #x\nconst char* c = TEXT(__CUDACC_RTC__);",
    "the emulator": "int i = kwemu::block();",
}
ONE = {
    "none": RIGHT_KERNEL,
    "its own": "#define TILE 32\n#define ROWS (TILE / 2)\n#if ROWS > 8\n#endif",
    "its own, asked for": "#define MINE\n#ifdef MINE\n#elif !defined(MINE)\n#endif",
    "taken out": "#if 0\nint a;\n#else\n#endif",
    "a macro": "#define AT(i, j) ((i) * 8 + (j))\n#pragma unroll",
    "a comment": "// #ifdef __CUDACC__\n/*\n#if __GNUC__\n*/",
    "a string": 'printf("\\n#ifdef __CUDACC__ %d", __LINE__);',
    "CUDA's": "__global__ void __launch_bounds__(8) f(int* __restrict__ x) {\n"
    "__shared__ __align__(16) float a[8]; __syncthreads(); __ldg(x); }",
}


@pytest.mark.parametrize("source", ASKS.values(), ids=ASKS)
def test_a_cell_that_asks_which_compiler_it_is(source: str) -> None:
    assert "asks which compiler it is" in two_programs(source)


@pytest.mark.parametrize("source", ONE.values(), ids=ONE)
def test_a_cell_that_is_one_program(source: str) -> None:
    assert not two_programs(source)


@pytest.mark.parametrize(
    ("given", "judged"),
    [
        ("#ifndef N\n#define N 8\n#endif", "#if 1    \n#define N 8\n#endif"),
        ("#ifdef DEBUG\n#endif", "#if 0       \n#endif"),
        (" # ifndef NDEBUG\n#endif", " # if 1         \n#endif"),
        ("#include <stdio.h>\n#ifdef EOF", "#include <stdio.h>\n#if 0     "),
        ("f(__FILE__, __LINE__);", 'f("answer", __LINE__);'),
        # A header's name is the cell's own from here on, for both compilers.
        (" # ifndef EOF\n\n#define EOF 8", " # if 1      \n\n#define EOF 8"),
        *((same, same) for same in (
            "#define N 4\n#ifndef N\n#define N 8\n#endif",
            "#ifndef N\nint a;\n#define N 8\n#endif",
            "// #ifndef N\n#define N 8",
            "#define N\n#ifdef N\n#endif",
            "#ifdef __CUDA_ARCH__\n#endif",
            "#ifdef _WIN32\n#ifdef KWEMU_TRACED\n#endif\n#endif",
            '// #ifdef DEBUG\nf("__FILE__");',
        )),
    ],
)  # fmt: skip
def test_a_constant_may_be_guarded(given: str, judged: str) -> None:
    assert with_defaults(given) == judged
    assert len(given) == len(judged)


def test_a_guarded_constant_earns_what_a_plain_one_does(judge: Judge) -> None:
    guard = "#ifndef TWO\n#define TWO 2\n#endif\n\n"
    cell = RIGHT_KERNEL.replace("2 * x[i];", "TWO * x[i];")
    cell = cell.replace("__global__", guard + "__global__", 1)
    assert judge.grade(KERNEL, Cells({"doubled": cell})).earned


def test_what_is_for_debugging_costs_nothing(judge: Judge) -> None:
    cell = RIGHT_KERNEL.replace(
        "2 * x[i];",
        '2 * x[i];\n#ifdef DEBUG\nprintf("%s", __FILE__);\n#endif\n'
        'if (i < 0) printf("%s:%d", __FILE__, __LINE__);',
    )
    assert judge.grade(KERNEL, Cells({"doubled": cell})).earned


def test_the_line_is_the_learners_own() -> None:
    said = two_programs("int a;\\\nint b;\n\n  #ifdef  __GNUC__ // so\n#endif")
    assert said.startswith("line 4: `#ifdef __GNUC__` asks")


def test_every_answer_of_the_course_is_one_program() -> None:
    asked = [e for e in all_exercises().values() if e.language == "cuda"]
    assert asked
    for exercise in asked:
        source = code_of(References().answer(exercise).source)
        assert not two_programs(source), exercise.id


def test_a_program_for_each_compiler_earns_nothing(judge: Judge) -> None:
    """The values would be one's, and the machine code the other's."""
    cell = RIGHT_KERNEL.replace(
        "2 * x[i];",
        "\n#ifdef __CUDACC_RTC__\n__shfl_sync(~0u, x[i], 0);\n#else\n2 * x[i];\n#endif",
    )
    result = judge.grade(KERNEL, Cells({"doubled": cell}))
    assert not result.passed and result.earned == 0.0
    assert result.words == "two programs in one"
    assert "line 7: `#ifdef __CUDACC_RTC__` asks" in result.message
