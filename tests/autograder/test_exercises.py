"""Every exercise: answers earn all points, stubs none, mistakes their own line."""

from __future__ import annotations

from copy import copy
from functools import partial

import pytest
import torch

from autograder.authoring.gated import grade_mistake, otherwise
from autograder.authoring.mistakes import Mistake, mistakes, record_of
from autograder.authoring.prints import made_of
from autograder.exercise import Case, Exercise
from autograder.exercises import all_exercises
from autograder.judge.judge import Judge
from autograder.judge.prints import EXERCISES as RECORDS
from autograder.judge.prints import prints_of
from autograder.judge.trial import Deadlines
from autograder.judge.values import cases_of, draw, given, is_right
from autograder.languages import SYNTAX
from autograder.regions import ROOT, cell_source
from autograder.submission.submitted import Cells, References

EXERCISES = all_exercises()
SEED = 20_261_121
each = pytest.mark.parametrize("exercise", EXERCISES.values(), ids=EXERCISES.keys())


@pytest.fixture(scope="module")
def patient(judge: Judge) -> Judge:
    """The shared judge's workers with a grade's own deadlines.

    The short ones are for what hangs; on a machine with others to serve the course's
    own answers would meet them by luck.
    """
    made = copy(judge)
    made.deadlines = Deadlines()
    return made


@each
def test_the_answer_earns_every_point_that_is_measured(
    exercise: Exercise, patient: Judge
) -> None:
    result = patient.grade(exercise, References())
    assert result.passed, result.message
    assert result.earned == result.possible
    assert result.earned > 0 or not exercise.shares["correct"]
    if exercise.language == "cuda":
        assert result.gate("sound").status == "passed"  # type: ignore[union-attr]
    if exercise.counts:
        counted = next(part for part in result.parts if part.name == "counts")
        assert counted.earned == counted.points > 0
    assert result.gate("structure") is None or (
        result.gate("structure").status == "passed"  # type: ignore[union-attr]
    )


@each
def test_the_stub_earns_nothing(exercise: Exercise, patient: Judge) -> None:
    stub = cell_source(exercise, solved=False)
    result = patient.grade(exercise, Cells({exercise.id: stub}))
    assert (result.words, result.earned) == ("not attempted", 0.0)
    # Nor does it by itself, with a change that is none.
    sign = SYNTAX[exercise.language].comment
    result = patient.grade(exercise, Cells({exercise.id: f"{stub}\n{sign} mine\n"}))
    assert not result.passed and result.earned == 0.0
    assert result.words != "not attempted"


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("exercise", "mistake"),
    [
        pytest.param(exercise, mistake, id=f"{exercise.id}-{mistake.name}")
        for exercise in EXERCISES.values()
        for mistake in mistakes(exercise)
    ],
)
def test_a_wrong_answer_earns_its_own_message(
    exercise: Exercise, mistake: Mistake, patient: Judge
) -> None:
    result = grade_mistake(exercise, mistake, patient)
    assert not result.passed
    wrong = otherwise(mistake, result)
    assert not wrong, wrong
    counted = result.gate("counts")
    earned = {part.name: part.earned for part in result.parts}
    if counted is None:
        assert result.earned == 0.0
    else:
        # It is right, and moves too much: that costs the points for counts alone.
        assert counted.status == "failed" and earned["counts"] == 0.0
        assert result.earned == earned.get("correct", 0.0)
    if exercise.counts and exercise.language == "cuda":
        # What could be counted here is lost, never left out.
        assert earned["counts"] == 0.0


@each
def test_it_has_at_least_three_wrong_answers(exercise: Exercise) -> None:
    path = record_of(exercise).relative_to(ROOT)
    assert len(mistakes(exercise)) >= 3, f"{path}: wanted three mistakes at least"


def test_every_wrong_answer_belongs_to_an_exercise() -> None:
    known = {f"{e.stem}/{e.id}" for e in EXERCISES.values()}
    for path in RECORDS.glob("*/*.toml"):
        assert f"{path.parent.name}/{path.stem}" in known, path


@each
def test_prints_are_made_of_what_stands_there(exercise: Exercise) -> None:
    prints = prints_of(exercise)
    assert prints is not None and prints.made_of == made_of(exercise), (
        f"run `make mistakes ONLY={exercise.id}`"
    )
    for number, case in enumerate(exercise.cases):
        problem = draw(exercise, case, SEED, f"public {number}")
        assert prints.hold(number, exercise, case, problem), case.name


def _lower(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Round to the significand of the next lower dtype, whatever the magnitude."""
    bits = {torch.float64: 24, torch.float32: 11, torch.float16: 8}.get(dtype, 4)
    mantissa, exponent = torch.frexp(values.double())
    rounded = torch.ldexp(torch.round(mantissa * 2**bits) / 2**bits, exponent)
    return torch.where(torch.isfinite(values), rounded, values.double()).to(dtype)


def _other_neighbour(best: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """Round to the other side of the exact value: what another order may give."""
    whole = {2: torch.int16, 4: torch.int32, 8: torch.int64}[best.element_size()]
    bits = best.contiguous().view(whole)
    # One bit up is away from zero, for either sign.
    away = (best.double().abs() < exact.abs()).to(whole) * 2 - 1
    moves = torch.isfinite(best) & (best != 0) & (best.double() != exact)
    moved = torch.where(moves, bits + away, bits).view(best.dtype)
    return torch.where(torch.isfinite(moved), moved, best)


@each
def test_the_tolerance_rejects_lower_precision_and_accepts_the_last_bit(
    exercise: Exercise,
) -> None:
    rejected = []
    for case, purpose in cases_of(exercise, SEED, public=False):
        problem = draw(exercise, case, SEED, purpose)
        arguments = given(problem)
        reference = exercise.reference(arguments)
        scales = exercise.tolerance.scale(arguments) if exercise.tolerance.scale else {}
        for name, output in problem.outputs.items():
            if not output.dtype.is_floating_point:
                continue
            judged = partial(_all_right, exercise, case, scales.get(name))
            best = reference[name].to(output.dtype).reshape(output.shape)
            assert judged(best, reference[name]), case.name
            exact = reference[name].double().reshape(output.shape)
            # Of 16 bits it is the last bit of the fp32 that is rounded to them.
            wide = exact.to(torch.promote_types(output.dtype, torch.float32))
            other = _other_neighbour(wide, exact).to(output.dtype)
            assert judged(other, reference[name]), case.name
            # A circuit's weights have 16 bits behind the point; _lower leaves half as
            # many of a float16.
            precision = torch.float16 if exercise.entry == "circuit" else output.dtype
            lower = _lower(best, precision).to(output.dtype)
            rejected.append(not judged(lower, reference[name]))
    # A case of zeros, or of one element, may survive the rounding; the others not.
    assert sum(rejected) >= 0.5 * len(rejected), rejected


def _all_right(
    exercise: Exercise,
    case: Case,
    scale: torch.Tensor | None,
    got: torch.Tensor,
    reference: torch.Tensor,
) -> bool:
    return bool(is_right(got, reference, scale, exercise.tolerance, case).all())


@each
def test_inputs_are_never_constant(exercise: Exercise) -> None:
    for case, purpose in cases_of(exercise, SEED, public=False):
        for name, value in given(draw(exercise, case, SEED, purpose)).items():
            # A mask has two values to take.
            if (
                isinstance(value, torch.Tensor)
                and value.numel() > 16
                and value.dtype is not torch.bool
                and name not in exercise.repeats
            ):
                # 16-bit numbers, and floats far from zero, have few values to take.
                said = (
                    f"{case.name}: {name} has few values. Where that is its nature, as "
                    f"of bins or labels, the exercise says repeats=({name!r},)"
                )
                assert len(value.unique()) > min(value.numel() // 2, 16), said
                flat = value.flatten()
                assert int((flat[1:] == flat[:-1]).sum()) < len(flat) // 2, said
