"""Triton answers that go wrong: what their learner reads."""

from __future__ import annotations

import pytest

from autograder.exercises import all_exercises
from autograder.judge.judge import Judge
from autograder.judge.results import Result
from autograder.submission.submitted import Cells

pytest.importorskip("triton")

ANSWER = """# exercise: vector_add_triton
@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    x = tl.load(x_ptr + i, mask=inside)
    y = tl.load(y_ptr + i, mask=inside)
    tl.store(out_ptr + i, x + y, mask=inside)


def vector_add_triton(x, y):
    out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        add_kernel[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)
    return out
"""


def graded(judge: Judge, before: str = "", after: str = "") -> Result:
    """Grade the answer with one change."""
    assert before in ANSWER
    cell = ANSWER.replace(before, after) if before else ANSWER
    exercise = all_exercises()["vector_add_triton"]
    return judge.grade(exercise, Cells({exercise.id: cell}))


def test_a_launched_kernel_is_counted(judge: Judge) -> None:
    result = graded(judge)
    assert result.passed, result.message


@pytest.mark.parametrize(
    ("line", "jit"),
    [("from triton import jit", "@jit"), ("import triton as tr", "@tr.jit")],
)
def test_an_import_may_be_written_otherwise(judge: Judge, line: str, jit: str) -> None:
    cell = ANSWER.replace("@triton.jit", f"{line}\n\n\n{jit}")
    exercise = all_exercises()["vector_add_triton"]
    result = judge.grade(exercise, Cells({exercise.id: cell}))
    assert result.passed, result.message


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("if n > 0", "if n < 0", "no Triton kernel was launched"),
        ("triton.cdiv(n, 1024)", "0", "launched on a grid of 0 programs"),
    ],
)
def test_torchs_sum_earns_nothing_without_a_launch(
    judge: Judge, before: str, after: str, told: str
) -> None:
    cell = ANSWER.replace("return out", "return x + y").replace(before, after)
    exercise = all_exercises()["vector_add_triton"]
    result = judge.grade(exercise, Cells({exercise.id: cell}))
    assert result.earned == 0.0
    assert told in result.message, result.message


def test_an_error_in_a_function_that_the_kernel_calls_has_its_line(
    judge: Judge,
) -> None:
    helper = "@triton.jit\ndef plus(x, y):\n    return x + z\n\n\n@triton.jit\ndef add_"
    cell = ANSWER.replace("@triton.jit\ndef add_", helper)
    cell = cell.replace("x + y, mask", "plus(x, y), mask")
    exercise = all_exercises()["vector_add_triton"]
    result = judge.grade(exercise, Cells({exercise.id: cell}))
    assert (
        "line 4 (`return x + z`): NameError: name 'z' is not defined" in result.message
    ), result.message


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        (
            "x + y, mask=inside",
            "x + z, mask=inside",
            "line 8 (`tl.store(out_ptr + i, x + z, mask=inside)`): NameError: name "
            "'z' is not defined",
        ),
        (
            "[(triton.cdiv(n, 1024),)]",
            "",
            "line 15 (`add_kernel(x, y, out, n, BLOCK=1024)`): the kernel was called "
            "like a function, without a grid: write add_kernel[(programs,)](...).",
        ),
        (
            "(triton.cdiv(n, 1024),)",
            "triton.cdiv(n, 1024)",
            "the grid is a number; wanted a tuple: write add_kernel[(programs,)](...).",
        ),
        (
            "(triton.cdiv(n, 1024),)",
            "[triton.cdiv(n, 1024)]",
            "the grid is a list; wanted a tuple: write add_kernel[(programs,)](...).",
        ),
    ],
)
def test_the_learners_own_line_is_named(
    judge: Judge, before: str, after: str, says: str
) -> None:
    message = graded(judge, before, after).message
    assert says in message


def test_a_forgotten_mask_is_named(judge: Judge) -> None:
    result = graded(judge, ", mask=inside", "")
    assert not result.passed and result.earned == 0.0
    assert "mask" in result.message, result.message
    assert "invalid pointer" not in result.message


def test_a_loop_that_never_ends_is_named(judge: Judge) -> None:
    result = graded(judge, "    inside = i < n\n", "    while n == n: n += 0\n")
    assert result.status == "timeout" and result.earned == 0.0
    assert result.gates[-1].name == "sound"
    assert "line 5 (`while n == n: n += 0`): still running after" in result.message
