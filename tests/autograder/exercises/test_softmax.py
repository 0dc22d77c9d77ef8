"""Chapter 8: tolerances that any order passes and sums in half precision do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

from autograder.exercise import Arguments, Case, Exercise, Outputs
from autograder.exercises.softmax import EXERCISES
from autograder.judge.judge import Judge
from autograder.judge.values import draw, given, is_right
from autograder.regions import cell_source
from autograder.submission.submitted import Cells

ONLINE_UPDATE = next(e for e in EXERCISES if e.id == "online_update")
ROWS = [exercise for exercise in EXERCISES if exercise is not ONLINE_UPDATE]
BY_ID = pytest.mark.parametrize("exercise", ROWS, ids=lambda e: e.id)
Answer = Callable[[Arguments], Outputs]
Tensor = torch.Tensor


def every_case(exercise: Exercise, most: int = 16_384) -> Iterator[Case]:
    for case in (*exercise.cases, *exercise.hidden(torch.Generator().manual_seed(3))):
        if case.sizes["rows"] and 0 < case.sizes["columns"] <= most:
            yield case


def right(exercise: Exercise, case: Case, answer: Answer) -> bool:
    problem = draw(exercise, case, 1, "test")
    arguments = given(problem)
    reference = exercise.reference(arguments)
    assert exercise.tolerance.scale is not None
    scales = exercise.tolerance.scale(arguments)
    got = answer(arguments)
    return all(
        bool(
            is_right(
                got[name].to(output.dtype),
                reference[name],
                scales[name],
                exercise.tolerance,
                case,
            ).all()
        )
        for name, output in problem.outputs.items()
    )


def x_of(arguments: Arguments) -> Tensor:
    x = arguments["x"]
    assert isinstance(x, Tensor)
    return x.float()


def by(sum_up: Callable[[Tensor], Tensor], exp: Callable[[Tensor], Tensor]) -> Answer:
    """Return a softmax in fp32 with its own sum and its own exponential."""

    def answer(arguments: Arguments) -> Outputs:
        x = x_of(arguments)
        e = exp(x - x.amax(1, keepdim=True))
        return {"out": e / sum_up(e)[:, None]}

    return answer


def loop(e: Tensor) -> Tensor:
    """Add one term after another, each sum rounded to the type."""
    total = torch.zeros(len(e), dtype=e.dtype)
    for term in e.T:
        total = total + term
    return total


def backwards(e: Tensor) -> Tensor:
    return loop(e.flip(1))


def in_half(e: Tensor) -> Tensor:
    return loop(e.half()).float()


def by_powers_of_two(x: Tensor) -> Tensor:
    """Return exp as a GPU has it: 2 to the power of x log2(e), rounded first."""
    return torch.exp2(x * torch.tensor(1.4426950408889634, dtype=torch.float32))


def online(arguments: Arguments) -> Outputs:
    """Keep a maximum and a total, a column at a time."""
    x = x_of(arguments)
    most, total = torch.full((len(x),), -torch.inf), torch.zeros(len(x))
    for column in x.T:
        most, total = step(most, total, column[:, None])
    return {"out": torch.exp(x - most[:, None]) / total[:, None]}


def step(most: Tensor, total: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    new = torch.maximum(most, values.amax(1))
    base = new.masked_fill(new == -torch.inf, 0.0)
    added = torch.exp(values - base[:, None]).sum(1)
    return new, total * torch.exp(most - base) + added


@BY_ID
def test_any_order_and_any_exponential_is_right(exercise: Exercise) -> None:
    for case in every_case(exercise):
        for answer in (
            by(lambda e: e.sum(1), torch.exp),
            by(loop, torch.exp),
            by(backwards, by_powers_of_two),
            online,
        ):
            assert right(exercise, case, answer), case.name


@pytest.mark.parametrize("name", ["softmax_triton", "softmax_long_rows"])
def test_powers_of_two_are_as_good(name: str, judge: Judge) -> None:
    exercise = next(e for e in EXERCISES if e.id == name)
    answer = cell_source(exercise, solved=True)
    assert "tl.exp(" in answer
    answer = answer.replace("tl.exp(", "tl.exp2(1.4426950408889634 * (")
    for argument in ("x - tl.max(x, 0)", "x - base", "maxima - maximum", "x - maximum"):
        answer = answer.replace(f"* ({argument})", f"* ({argument}))")
    result = judge.grade(exercise, Cells({name: answer}))
    assert result.passed and result.earned == result.possible, result.message


@BY_ID
def test_a_sum_in_half_is_not(exercise: Exercise) -> None:
    told = [
        not right(exercise, case, by(in_half, torch.exp))
        for case in every_case(exercise, 80_000)
        if case.sizes["columns"] > 500 and case.regime in ("distinct", "flat")
    ]
    assert told and all(told)


def test_the_right_answer_leaves_out_no_regime() -> None:
    """A row of nothing but -inf is NaN, as in torch; a NaN spoils its own row only."""
    for exercise in ROWS:
        seen = set()
        for case in every_case(exercise):
            arguments = given(draw(exercise, case, 1, "test"))
            out = exercise.reference(arguments)["out"]
            assert torch.equal(
                out.isnan().any(1), torch.softmax(x_of(arguments), -1).isnan().any(1)
            )
            seen.add(case.regime)
        assert {"distinct", "far", "masked"} <= seen


def test_values_may_come_one_at_a_time_or_all_at_once() -> None:
    def one_at_a_time(arguments: Arguments) -> Outputs:
        most, total, values = (arguments[n] for n in ("maximum", "total", "values"))
        assert isinstance(most, Tensor)
        assert isinstance(total, Tensor) and isinstance(values, Tensor)
        for column in values.T:
            most, total = step(most, total, column[:, None])
        return {"maximum": most, "total": total}

    def in_half_precision(arguments: Arguments) -> Outputs:
        got = one_at_a_time(arguments)
        return {"maximum": got["maximum"], "total": got["total"].half().float()}

    cases = list(every_case(ONLINE_UPDATE))
    assert all(right(ONLINE_UPDATE, case, one_at_a_time) for case in cases)
    begun = [case for case in cases if case.regime in ("begun", "empty")]
    assert not any(right(ONLINE_UPDATE, case, in_half_precision) for case in begun)


def test_the_empty_beginning_stays_empty() -> None:
    case = next(case for case in ONLINE_UPDATE.cases if case.regime == "masked")
    out = ONLINE_UPDATE.reference(given(draw(ONLINE_UPDATE, case, 1, "test")))
    empty = out["maximum"] == -torch.inf
    assert empty.any() and (out["total"][empty] == 0).all()
    assert not out["total"].isnan().any()
