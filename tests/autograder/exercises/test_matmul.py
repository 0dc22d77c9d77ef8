"""Chapter 6: sums in any order, no TF32, shapes that no mistake passes."""

from __future__ import annotations

import pytest
import torch

from autograder.exercise import Case, Exercise
from autograder.exercises.matmul import EXERCISES
from autograder.exercises.matmul.shared import operands, shape_case
from autograder.ideals import ideal_of
from autograder.judge.values import draw, given, is_right

MATMUL_FAST = next(e for e in EXERCISES if e.id == "matmul_fast")
MATMUL_TILED = next(e for e in EXERCISES if e.id == "matmul_tiled")
BY_ID = pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.id)


def every_case(exercise: Exercise) -> list[Case]:
    hidden = exercise.hidden(torch.Generator().manual_seed(3))
    return [*exercise.cases, *hidden]


def fits(exercise: Exercise, case: Case, got: torch.Tensor) -> bool:
    arguments = given(draw(exercise, case, 1, "test"))
    (reference,) = exercise.reference(arguments).values()
    assert exercise.tolerance.scale is not None
    (scale,) = exercise.tolerance.scale(arguments).values()
    return bool(is_right(got, reference, scale, exercise.tolerance, case).all())


def rounded(x: torch.Tensor, bits: int) -> torch.Tensor:
    """Round to a significand of so many bits: 11 for TF32 and fp16."""
    mantissa, exponent = torch.frexp(x.double())
    short = torch.ldexp(torch.round(mantissa * 2**bits) / 2**bits, exponent)
    return torch.where(x.isfinite(), short, x.double())


@BY_ID
def test_a_sum_in_any_order_is_right(exercise: Exercise) -> None:
    for case in every_case(exercise):
        a, b = operands(given(draw(exercise, case, 1, "test")))
        order = torch.randperm(case.sizes["k"])
        forwards = torch.zeros(a.shape[0], b.shape[1])
        for i in order.tolist():
            forwards = forwards + (a[:, i : i + 1] * b[i : i + 1]).float()
        assert fits(exercise, case, forwards), case.name
        assert fits(exercise, case, a.float() @ b.float()), case.name


@BY_ID
def test_factors_rounded_to_tf32_are_wrong(exercise: Exercise) -> None:
    refused = 0
    for case in every_case(exercise):
        a, b = operands(given(draw(exercise, case, 1, "test")))
        refused += not fits(exercise, case, (rounded(a, 11) @ rounded(b, 11)).float())
    # Where there is nothing to sum, nothing is rounded.
    assert refused >= len(every_case(exercise)) - 2


def test_tf32_is_wrong_at_the_timed_size_too() -> None:
    case = shape_case(8, 64, 4096)
    arguments = given(draw(MATMUL_FAST, case, 1, "test"))
    a, b = operands(arguments)
    assert fits(MATMUL_FAST, case, a.float() @ b.float())
    assert not fits(MATMUL_FAST, case, (rounded(a, 11) @ rounded(b, 11)).float())


@BY_ID
def test_shapes_are_awkward_and_fit_what_is_asked(exercise: Exercise) -> None:
    shapes = [tuple(c.sizes.values()) for c in every_case(exercise)]
    assert any(len(set(shape)) == 3 for shape in shapes)
    assert any(0 in shape for shape in shapes)
    in_fours = all(not (n % 4 or k % 4) for _, n, k in shapes)
    assert in_fours == (
        exercise.id in ("matmul_wide", "matmul_warp_tiles", "matmul_fast")
    )
    # The counts are asked of whole tiles, which come first.
    m, n, k = shapes[0]
    assert not (m % 64 or n % 32 or k % 16)


@pytest.mark.parametrize(
    "exercise", [e for e in EXERCISES if e.speed], ids=lambda e: e.id
)
def test_what_is_timed_counts_operations(exercise: Exercise) -> None:
    speed = exercise.speed
    assert speed is not None
    assert speed.flops is not None and speed.run_peer is not None
    assert speed.flops(speed.case) == 2 * 4096**3
    assert speed.bytes_moved(speed.case) == 3 * 4 * 4096**2
    assert speed.unit == "fp32"
    assert 0 < speed.bands["bronze"] < speed.bands["silver"] < speed.bands["gold"] < 1


def test_the_counts_of_the_tiled_product_are_the_chapters() -> None:
    moved = next(
        c for c in MATMUL_TILED.counts if (c.metric, c.op) == ("moved", "load")
    )
    case = MATMUL_TILED.cases[0]
    m, n, k = (case.sizes[name] for name in "mnk")
    problem = draw(MATMUL_TILED, case, 7, "public 0")
    assert ideal_of(moved, problem) == 4 * m * n * k / 16
