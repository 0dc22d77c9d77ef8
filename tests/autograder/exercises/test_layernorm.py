"""Chapter 5: tolerances that hold what they promise, rows that are awkward."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import kernelwright as kw
from autograder.exercise import Case, Exercise
from autograder.exercises.layernorm import EXERCISES
from autograder.ideals import ideal_of
from autograder.judge.values import draw, given, is_right
from autograder.regions import read_region

ROOT = Path(__file__).resolve().parents[3]
BY_ID = {exercise.id: exercise for exercise in EXERCISES}
# What normalises rows in one kernel: x in, out out.
NORMS = [BY_ID[name] for name in ("layer_norm", "layer_norm_relu", "variance_cancels")]


def every_case(exercise: Exercise) -> list[Case]:
    hidden = exercise.hidden(torch.Generator().manual_seed(3))
    return [*exercise.cases, *hidden]


def all_right(
    exercise: Exercise, case: Case, arguments: dict, outputs: dict[str, torch.Tensor]
) -> bool:
    reference = exercise.reference(arguments)
    scale = exercise.tolerance.scale
    scales = scale(arguments) if scale else {}
    return all(
        bool(
            is_right(
                got, reference[name], scales.get(name), exercise.tolerance, case
            ).all()
        )
        for name, got in outputs.items()
    )


def normalised(x: torch.Tensor, order: str, eps: float = 1e-5) -> torch.Tensor:
    """Normalise rows in fp32, with sums in some order; or in 16 bits."""
    columns = x.shape[1]

    def total(values: torch.Tensor) -> torch.Tensor:
        if order == "serial":
            return values.cumsum(1)[:, -1:]
        if order == "backwards":
            return values.flip(1).cumsum(1)[:, -1:]
        if order == "half":
            return values.half().sum(1, keepdim=True).float()
        if order == "bfloat16":
            return values.bfloat16().sum(1, keepdim=True).float()
        return values.sum(1, keepdim=True)

    d = x - total(x) / columns
    return d * (total(d * d) / columns + eps).rsqrt()


@pytest.mark.parametrize("order", ["pairs", "serial", "backwards"])
def test_any_order_of_the_sums_is_right(order: str) -> None:
    exercise = BY_ID["layer_norm"]
    for case in every_case(exercise):
        arguments = given(draw(exercise, case, 1, "test"))
        h = normalised(arguments["x"], order, arguments["eps"])
        out = h * arguments["weight"] + arguments["bias"]
        assert all_right(exercise, case, arguments, {"out": out}), case.name


@pytest.mark.parametrize("order", ["half", "bfloat16"])
def test_sums_of_16_bits_are_not(order: str) -> None:
    exercise = BY_ID["layer_norm"]
    rejected = []
    for case in every_case(exercise):
        if case.sizes["columns"] < 16:
            continue
        arguments = given(draw(exercise, case, 1, "test"))
        h = normalised(arguments["x"], order, arguments["eps"])
        out = h * arguments["weight"] + arguments["bias"]
        rejected.append(not all_right(exercise, case, arguments, {"out": out}))
    assert sum(rejected) > len(rejected) / 2


def test_a_mean_of_one_float_is_not_enough_far_from_zero() -> None:
    exercise = BY_ID["variance_cancels"]
    far = [case for case in every_case(exercise) if case.regime == "far"]
    assert len(far) >= 4
    for case in far:
        if case.sizes["columns"] < 8:
            continue
        arguments = given(draw(exercise, case, 1, "test"))
        plain = normalised(arguments["x"], "pairs")
        assert not all_right(exercise, case, arguments, {"out": plain}), case.name


def test_the_detective_is_right_near_zero_and_lost_far_from_it() -> None:
    exercise = BY_ID["variance_cancels"]
    region = read_region(ROOT / exercise.source, exercise.id)
    kernel = kw.cuda.compile(region.text_stub, backend="emulator")[exercise.name]
    for case in exercise.cases:
        problem = draw(exercise, case, 1, "test")
        assert problem.launch is not None
        arguments = given(problem)
        out = torch.empty_like(arguments["x"])
        values = [out if v is None else v for v in problem.arguments.values()]
        kernel[problem.launch.grid, problem.launch.block](*values)
        right = all_right(exercise, case, arguments, {"out": out})
        if case.regime == "far":
            assert not right
        elif case.sizes["columns"] > 1 and case.regime == "distinct":
            exact = exercise.reference(arguments)["out"]
            assert (out - exact).abs().max() < 1e-3


@pytest.mark.parametrize("exercise", NORMS, ids=lambda e: e.id)
def test_rows_are_awkward(exercise: Exercise) -> None:
    columns = [case.sizes["columns"] for case in every_case(exercise)]
    regimes = {case.regime for case in every_case(exercise)}
    assert any(n % 32 for n in columns) and min(columns) <= 4
    assert "nan" in regimes
    in_fours = all(n % 4 == 0 for n in columns)
    assert in_fours == (exercise.id == "layer_norm_relu")


@pytest.mark.parametrize(
    "exercise", [e for e in EXERCISES if e.speed], ids=lambda e: e.id
)
def test_the_timed_case_passes_four_caches(exercise: Exercise) -> None:
    assert exercise.speed is not None
    bands = exercise.speed.bands
    assert 0 < bands["bronze"] < bands["silver"] < bands["gold"] <= 1
    # 60 MB is the largest L2 that this course has met.
    assert exercise.speed.bytes_moved(exercise.speed.case) >= 4 * 60e6


def test_x_may_be_read_once_only() -> None:
    for name in ("layer_norm", "layer_norm_relu", "rms_norm", "layer_norm_backward"):
        exercise = BY_ID[name]
        (loads,) = (c for c in exercise.counts if (c.metric, c.op) == ("moved", "load"))
        case = exercise.cases[0]
        size = 2 if name == "rms_norm" else 4
        again = size * case.sizes["rows"] * case.sizes["columns"]
        problem = draw(exercise, case, 7, "public 0")
        assert loads.times is not None
        assert (loads.times - 1) * ideal_of(loads, problem) < again
