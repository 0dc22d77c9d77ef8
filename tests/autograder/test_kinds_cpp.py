"""An exercise in C++ for the host: compiled, called, judged as any other is."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hostile import fails
from small_exercises import give_prints, make_exercise

from autograder.exercise import (
    Arguments,
    Case,
    Output,
    Outputs,
    Problem,
    Structure,
)
from autograder.judge.judge import Judge
from autograder.submission.submitted import Cells


def _problem(case: Case, generator: torch.Generator) -> Problem:
    n = case.sizes["n"]
    x = torch.randint(-8, 8, (2 * n,), generator=generator, dtype=torch.int8)
    out = {"out": Output((n,), torch.uint8)}
    return Problem({"x": x, "out": None, "n": n}, out)


def _packed(arguments: Arguments) -> Outputs:
    x = arguments["x"]
    assert isinstance(x, torch.Tensor)
    low, high = (x.view(torch.uint8).reshape(-1, 2) & 15).unbind(1)
    return {"out": low | high << 4}


def _swapped(arguments: Arguments) -> Outputs:
    right = _packed(arguments)["out"]
    return {"out": right >> 4 | right << 4}


PACK = make_exercise(
    "pack_int4",
    "cpp",
    entry="function",
    problem=_problem,
    reference=_packed,
    cases=(Case("n = 33", {"n": 33}), Case("n = 0", {"n": 0})),
    hidden=lambda g: [Case("n = 70", {"n": 70})],
    structure=(Structure(lacks=("asm",)),),
)
give_prints(PACK, swapped=("The two halves of each byte are swapped.", _swapped))
RIGHT = """%%cpp
// exercise: pack_int4
#include <cstdint>
extern "C" void pack_int4(const int8_t* x, std::uint8_t* out, int n) {
    for (int i = 0; i < n; i++) {
        out[i] = (x[2 * i] & 15) | (x[2 * i + 1] << 4);
    }
}
"""


def graded(judge: Judge, cell: str) -> Any:
    return judge.grade(PACK, Cells({"pack_int4": cell}))


def test_a_host_function_is_right(judge: Judge) -> None:
    result = graded(judge, RIGHT)
    assert result.passed, result.message
    assert (result.earned, result.words) == (10.0, "correct (CPU)")


@pytest.mark.parametrize(
    ("old", "new", "says", "status"),
    [
        ("    for", "    return; for", "out[0] was never written", "failed"),
        ("2 * i]", "2 * i + 1]", "out[0] is", "failed"),
        ("out[i]", "out[i + 1]", "it writes outside of out", "failed"),
        ("i < n", "i < m", "line 5: 'm' was not declared", "failed"),
        ("i < n; i++", "; ", "still running after", "timeout"),
        ("    for", '    asm(""); for', "uses asm", "failed"),
        ("pack_int4(", "packed(", "the cell defines no 'pack_int4'", "failed"),
        ('extern "C" ', "", 'Begin the function with extern "C" void', "failed"),
        ("%%cpp\n", "%%cuda\n", "must begin with %%cpp", "failed"),
    ],
)
def test_a_wrong_one_is_told_why(
    judge: Judge, old: str, new: str, says: str, status: str
) -> None:
    assert old in RIGHT
    fails(graded(judge, RIGHT.replace(old, new)), says, status)


def test_a_known_mistake_is_named(judge: Judge) -> None:
    swapped = RIGHT.replace("x[2 * i] & 15", "x[2 * i + 1] & 15")
    swapped = swapped.replace("x[2 * i + 1] <<", "x[2 * i] <<")
    fails(graded(judge, swapped), "The two halves of each byte are swapped.")
