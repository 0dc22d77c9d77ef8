"""Triton answers whose values something else than a kernel made."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator

import pytest
import torch
from hostile import fails

from autograder.exercises import all_exercises
from autograder.judge.judge import Judge
from autograder.judge.results import Result
from autograder.submission.submitted import Cells
from autograder.worker.operations import operations_seen
from autograder.worker.origins import Origins

pytest.importorskip("triton")

X = torch.linspace(-3.0, 3.0, 96)[torch.randperm(96)].reshape(8, 12)
Tensor = torch.Tensor


def origins() -> Origins:
    return Origins([X], X.numel())


def stored(seen: Origins, values: Tensor) -> Tensor:
    """Have a kernel store values where nothing is: the worker fills what is empty."""
    out = torch.full_like(values, torch.nan)
    seen.before("kernel", {"x_ptr": X, "out_ptr": out})
    out.copy_(values)
    seen.after({"x_ptr": X, "out_ptr": out})
    return out


MINE = torch.softmax(X, -1)


def test_what_it_looks_at_is_no_operation_of_the_answers() -> None:
    seen = origins()
    with operations_seen() as ran:
        copy = X[2:].clone()  # compared with the inputs, value by value
        seen.before("kernel", {"x_ptr": copy})
        seen.after({"x_ptr": copy.add_(1.0)})
    named = {name for name in ran if name.startswith("aten.")}
    assert named == {"aten.slice.Tensor", "aten.clone.default", "aten.add_.Tensor"}


HARMLESS: dict[str, Callable[[], object]] = {
    "input": lambda: X,
    "view": lambda: X[2:, ::3],
    "transposed": lambda: X.T.contiguous(),
    "padded": lambda: torch.nn.functional.pad(X, (0, 4)),
    "wider": lambda: X.double(),
    "narrower": lambda: X.half(),
    "empty": lambda: torch.empty(8, 12).fill_(torch.nan),
    "zeros": lambda: torch.zeros(8, 12),
    "minus infinity": lambda: torch.full((8, 12), -torch.inf),
    "places": lambda: torch.arange(96),
    "no element": lambda: torch.empty(0, 12),
    "a number a row": lambda: X.sum(1),
    "a mask": lambda: X > 0,
    "numbers": lambda: (96, 12**-0.5, None, "row"),
}


@pytest.mark.parametrize("made", HARMLESS.values(), ids=HARMLESS)
def test_what_a_kernel_may_be_given(made: Callable[[], object]) -> None:
    seen = origins()
    seen.before("kernel", {"x_ptr": made()})
    assert not seen.trouble


def _behind_torchs_back() -> Tensor:
    out = torch.zeros(8, 12)
    ctypes.memmove(out.data_ptr(), MINE.data_ptr(), 4 * MINE.numel())
    return out


COMPUTED: dict[str, Callable[[], object]] = {
    "torch": lambda: torch.softmax(X, -1),
    "numpy": lambda: torch.from_numpy(MINE.numpy() * 1.0),
    "memmove": _behind_torchs_back,
    "in a larger one": lambda: torch.cat((X, MINE)),
    "in whole numbers": lambda: MINE.view(torch.int32),
    "in a tuple": lambda: (X, torch.exp(X)),
    "scaled": lambda: X * 0.3,
}


@pytest.mark.parametrize("made", COMPUTED.values(), ids=COMPUTED)
def test_what_a_kernel_may_not_be_given(made: Callable[[], object]) -> None:
    seen = origins()
    seen.before("kernel", {"x_ptr": X, "y_ptr": made()})
    assert seen.trouble == {"kind": "argument", "kernel": "kernel", "name": "y_ptr"}


def test_inputs_that_were_written_over_are_no_inputs() -> None:
    x = X.clone()
    seen = Origins([x], x.numel())
    x.copy_(MINE)
    seen.before("kernel", {"x_ptr": x})
    assert seen.trouble["name"] == "x_ptr"


def test_an_output_of_one_kernel_is_given_to_the_next() -> None:
    seen = origins()
    part = stored(seen, X.exp())
    stored(seen, MINE)
    seen.before("kernel", {"x_ptr": part, "y_ptr": part.half()})
    assert not seen.trouble
    part[3] *= 2
    seen.before("kernel", {"x_ptr": part})
    assert not seen.trouble  # a number a row
    part *= 2
    seen.before("kernel", {"x_ptr": part})
    assert seen.trouble


def test_an_output_handed_over_as_numbers() -> None:
    seen = origins()
    for value in MINE.flatten().tolist():
        seen.before("kernel", {"value": value})
    assert seen.trouble == {"kind": "numbers", "kernel": "kernel", "name": ""}


RETURNED: dict[str, Callable[[Tensor], Tensor]] = {
    "it": lambda out: out,
    "a view": lambda out: out[:, :6],
    "a copy": lambda out: out.clone(),
    "rounded": lambda out: out.half(),
    "zeros": lambda out: torch.zeros(8, 12),
    "nothing": lambda out: torch.empty(0),
}


@pytest.mark.parametrize("back", RETURNED.values(), ids=RETURNED)
def test_what_a_kernel_stored_comes_back(back: Callable[[Tensor], Tensor]) -> None:
    seen = origins()
    out = stored(seen, MINE)
    seen.returned([back(out)])
    assert not seen.trouble


ELSEWHERE: dict[str, Callable[[Tensor], Tensor]] = {
    "input": lambda out: X,
    "another": lambda out: X.exp() / X.exp().sum(1, keepdim=True) * 1.5,
    "written over": lambda out: out.copy_(X.exp()),
    "added up": lambda out: out + out.flip(1),
}


@pytest.mark.parametrize("back", ELSEWHERE.values(), ids=ELSEWHERE)
def test_what_comes_back_was_made_elsewhere(back: Callable[[Tensor], Tensor]) -> None:
    seen = origins()
    out = stored(seen, MINE)
    seen.returned([back(out)])
    assert seen.trouble["kind"] == "returned"


ANSWER = """# exercise: softmax_triton
@triton.jit
def copy(y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(y_ptr + i, mask=i < n)
    if n < 0:
        y = tl.exp(tl.max(y, 0)) / tl.sum(y, 0)
    tl.store(out_ptr + i, y, mask=i < n)


def softmax_triton(x):
    out = torch.empty_like(x)
    y = getattr(torch.nn.functional, "soft" + "max")(x, -1)
    copy[(triton.cdiv(x.numel(), 1024),)](GIVEN, out, x.numel(), BLOCK=1024)
    return BACK
"""


@pytest.fixture
def graded(judge: Judge) -> Iterator[Callable[[str], Result]]:
    exercise = all_exercises()["softmax_triton"]
    yield lambda cell: judge.grade(exercise, Cells({exercise.id: cell}))


@pytest.mark.parametrize(
    ("given", "back", "says"),
    [
        ("y", "out", "copy is given y_ptr, which is no input and which no kernel"),
        ("x", "y", "they are not what a kernel stored: softmax_triton returns"),
    ],
    ids=["given", "returned"],
)
def test_a_kernel_beside_torchs_own_softmax(
    graded: Callable[[str], Result], given: str, back: str, says: str
) -> None:
    cell = ANSWER.replace("GIVEN", given).replace("BACK", back)
    fails(graded(cell), says)


def test_a_forgotten_launch_is_named(graded: Callable[[str], Result]) -> None:
    cell = ANSWER.replace("    copy[(triton", "    return out\n    copy[(triton")
    fails(graded(cell), "no Triton kernel was launched. Call yours")
