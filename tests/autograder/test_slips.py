"""What a cell says and hardly means, and where writing outside of a tensor points."""

from __future__ import annotations

import time

import pytest
import torch
from small_exercises import KERNEL, RIGHT_KERNEL, make_exercise

from autograder.exercise import Launch, Output, Problem
from autograder.judge.judge import Judge
from autograder.judge.trial import _side_effects
from autograder.submission.slips import slips
from autograder.submission.submitted import Cells


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (
            "if (i < n);\n  x[i] = 1;",
            "line 1: the ; right behind `if (i < n)` ends the",
        ),
        ("\nfor (; i < f(n); i += 1) ;", "line 2: the ; right behind `for (; i < f(n)"),
        ("if (i = n) x[0] = 1;", "line 1: `if (i = n)` stores a value"),
        ("// (\nif ((i = n) > 2) { }", "line 2: `if ((i = n) > 2)` stores a value"),
        ("{\nfloat sum;\nfor (;;) sum += x[0]; }", "line 2: `sum` is declared with"),
        ("{ int i = 0, n;\nn++; }", "line 1: `n` is declared with no value"),
        (
            "{ float top;\ntop = fmaxf(top, x[0]); }",
            "line 1: `top` is declared with no",
        ),
        ("{ float a; a = 2 * a + 1; }", "line 1: `a` is declared with no value"),
        (
            "__global__ void k() {\nfloat t[9][9];\nt[n][threadIdx.x] = 1;\n"
            "__syncthreads(); }",
            "line 3: `t` is declared without __shared__",
        ),
    ],
)
def test_a_slip_is_named(source: str, says: str) -> None:
    found = slips(source)
    assert len(found) == 1 and found[0].startswith(says), found


@pytest.mark.parametrize(
    "source",
    [
        "if (i < n) x[i] = 1;",
        "if (i == n || i >= 3 || i != 4 || i <= 5) { }",
        "for (int i = 0; i < n; ++i) { }",
        "do { } while (i < n); while (*flag == 0);",
        'printf("if (i = n);"); // if (a);',
        "if (int k = 0; k == n) { }",
        "if (",
        "__global__ void k() { __shared__ float t[9]; t[threadIdx.x] = 1;\n"
        "__syncthreads(); }",
        "__global__ void k(float* t) { float v[9]; v[1] = t[threadIdx.x];\n"
        "__syncthreads(); }",
        "{ float sum; sum = 0; sum += x[0]; }",
        "{ float a, b; a = f(x, y), b = a; }",
        "{ float a; a = b.a + aa + s->a; a = fmaxf(a, 0); }",
        "{ int n; if (n == n0) { } }",
        "{ float sum = 0, v[4]; sum += v[0]; }",
        "{ __shared__ float sum; sum += x[0]; }",
        "__device__ int seen;\n__global__ void k() { seen += 1; }",
        "struct S { float sum; };\n{ S s; s.sum += 1; p->sum += 1; }",
        "struct S { float sum; };\n__device__ void f(float sum) { sum += 1; }",
    ],
)
def test_what_is_meant_is_no_slip(source: str) -> None:
    assert slips(source) == []


def test_a_flood_of_heads_takes_no_time() -> None:
    started = time.process_time()
    assert slips("if(" * 100_000) == []
    assert slips("if(" * 100_000 + ")" * 100_000 + ";")
    assert len(slips("if (a);\n" * 100_000)) == 8
    assert time.process_time() - started < 8.0


def test_a_slip_stands_beside_the_verdict(judge: Judge) -> None:
    cell = RIGHT_KERNEL.replace("if (i < n) {", "if (i < n); {")
    result = judge.grade(KERNEL, Cells({"doubled": cell}))
    assert not result.passed
    assert result.note.startswith("line 5: the ; right behind `if (i < n)` ends the if")
    # What keeps a cell from compiling is not replaced by it.
    cell = RIGHT_KERNEL.replace("if (i < n) {", "for (int j = i; j < n; ++j); {")
    cell = cell.replace("[i]", "[j]")
    result = judge.grade(KERNEL, Cells({"doubled": cell}))
    assert result.words == "does not compile"
    first, _, rest = result.message.partition("\n")
    assert "does not compile" in first and "'j' was not declared" in rest
    assert "line 5: the ; right behind `for (" in rest


@pytest.mark.parametrize(
    ("length", "index", "says"),
    [
        ({"n": 40}, 40, "element (out[40]). Threads without an element of their own"),
        ({"n": 40}, 4000, "(out[4000]). From what is that index computed"),
        ({}, 40, "(out[40]). From what is that index computed"),
        ({"n": 40}, "no index", "past its last element. From what is that index"),
    ],
)
def test_guard_advice_is_for_threads_past_the_end(
    length: dict[str, int], index: object, says: str
) -> None:
    out = {"out": Output((40,), torch.float32)}
    problem = Problem(
        {"x": torch.ones(40), "out": None, **length}, out, Launch((2,), (32,))
    )
    answer = {"trespass": {"out": ["behind"]}, "outside": {"out": index}}
    assert says in _side_effects(make_exercise("a", "cuda"), problem, answer)
