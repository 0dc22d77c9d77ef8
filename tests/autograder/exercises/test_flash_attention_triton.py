"""Chapter 10: tolerances that any order passes and lower precision does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from autograder.drawing import tensor
from autograder.exercise import Arguments, Case, Exercise
from autograder.exercises.flash_attention_triton import EXERCISES
from autograder.exercises.flash_attention_triton.shared import (
    seen_by_all,
    seen_causally,
    spread,
)
from autograder.judge.values import draw, given, is_right

TILE = 64
BY_ID = {exercise.id: exercise for exercise in EXERCISES}
FULL = ("absorb_tile", "flash_triton")
FORWARD = (*FULL, "flash_triton_causal", "flash_gqa", "flash_fast")
Round = Callable[[torch.Tensor], torch.Tensor]


def half(x: torch.Tensor) -> torch.Tensor:
    return x.half().float()


def bf16(x: torch.Tensor) -> torch.Tensor:
    return x.bfloat16().float()


def none(x: torch.Tensor) -> torch.Tensor:
    return x


def every_case(exercise: Exercise) -> list[Case]:
    hidden = exercise.hidden(torch.Generator().manual_seed(3))
    return [*exercise.cases, *hidden]


def attend(
    arguments: Arguments,
    *,
    causal: bool,
    order: int = 1,
    weights: Round = half,
    logits: Round = none,
    sums: Round = none,
) -> torch.Tensor:
    """Attend in fp32, tile by tile in either order, rounded where it is asked."""
    q = tensor(arguments, "q").float()
    k, v = (t.float() for t in spread(arguments))
    seen = (seen_causally if causal else seen_by_all)(arguments)
    s = logits(q @ k.mT * q.shape[3] ** -0.5).masked_fill(~seen, -torch.inf)
    p = torch.exp(s - s.amax(-1, keepdim=True))
    acc = torch.zeros_like(q)
    for tile in list(torch.arange(k.shape[2]).split(TILE))[::order]:
        acc = sums(acc + weights(p[..., tile]) @ v[:, :, tile])
    return (acc / p.sum(-1, keepdim=True)).half()


def right(exercise: Exercise, case: Case, **how: object) -> bool:
    arguments = given(draw(exercise, case, 1, "test"))
    (reference,) = exercise.reference(arguments).values()
    assert exercise.tolerance.scale is not None
    (scale,) = exercise.tolerance.scale(arguments).values()
    causal = exercise.id not in FULL
    got = attend(arguments, causal=causal, **how)  # type: ignore[arg-type]
    return bool(is_right(got, reference, scale, exercise.tolerance, case).all())


@pytest.mark.parametrize("name", FORWARD)
def test_either_order_of_the_tiles_is_right(name: str) -> None:
    for case in every_case(BY_ID[name]):
        for order in (1, -1):
            assert right(BY_ID[name], case, order=order), case.name
        assert right(BY_ID[name], case, weights=none), case.name


@pytest.mark.parametrize("name", FORWARD)
@pytest.mark.parametrize(
    "mutant",
    [{"weights": bf16}, {"sums": bf16}, {"logits": bf16}],
    ids=lambda mutant: next(iter(mutant)),
)
def test_lower_precision_is_wrong(name: str, mutant: dict[str, Round]) -> None:
    # Over many keys of like weight such roundings cancel; where few weigh, they show.
    public = BY_ID[name].cases
    assert not all(right(BY_ID[name], case, **mutant) for case in public)


@pytest.mark.parametrize("name", ["absorb_tile", "flash_triton", "flash_fast"])
def test_sums_in_half_precision_overflow(name: str) -> None:
    (case,) = (case for case in BY_ID[name].cases if case.regime == "even")
    assert right(BY_ID[name], case)
    assert not right(BY_ID[name], case, sums=half)


@pytest.mark.parametrize("name", ["tile_gradients", "flash_backward"])
def test_gradients_may_err_as_their_kernel_does_and_no_more(name: str) -> None:
    exercise = BY_ID[name]
    for case in every_case(exercise):
        assert all(good_gradients(exercise, case, half)), case.name
        assert all(good_gradients(exercise, case, none)), case.name
        # Large logits give one key all the weight, and no rounding of a 1 shows.
        if case.sizes["n"] > 60 and case.regime != "large":
            assert not any(good_gradients(exercise, case, bf16)), case.name


def test_gradients_of_logits_in_half_precision_are_wrong() -> None:
    exercise = BY_ID["tile_gradients"]
    (case,) = (case for case in exercise.cases if case.regime == "large")
    assert not any(good_gradients(exercise, case, half, logits=half))


def good_gradients(
    exercise: Exercise, case: Case, rounding: Round, logits: Round = none
) -> list[bool]:
    arguments = given(draw(exercise, case, 1, "test"))
    reference = exercise.reference(arguments)
    got = gradients(arguments, rounding, logits)
    assert exercise.tolerance.scale is not None
    scales = exercise.tolerance.scale(arguments)
    right = (
        is_right(got[name], reference[name], scales[name], exercise.tolerance, case)
        for name in ("dq", "dk", "dv")
    )
    return [bool(same.all()) for same in right]


def gradients(
    arguments: Arguments, rounding: Round, logits: Round
) -> dict[str, torch.Tensor]:
    """Compute the gradients in fp32, with P and dS rounded, and the logits."""
    q, k, v, grad, out = (
        tensor(arguments, name).float() for name in ("q", "k", "v", "grad", "out")
    )
    s = logits(q @ k.mT * q.shape[3] ** -0.5)
    s = s.masked_fill(~seen_causally(arguments), -torch.inf)
    p = torch.exp(s - tensor(arguments, "lse")[..., None])
    dp = grad @ v.mT
    ds = p * (dp - (grad * out).sum(-1, keepdim=True)) * q.shape[3] ** -0.5
    ds = rounding(ds)
    made = {"dq": ds @ k, "dk": ds.mT @ q, "dv": rounding(p).mT @ grad}
    return {name: value.half() for name, value in made.items()}


def test_the_timed_case_passes_four_caches() -> None:
    speed = BY_ID["flash_fast"].speed
    assert speed is not None and speed.flops is not None
    # 60 MB is the largest L2 that this course has met.
    assert speed.bytes_moved(speed.case) > 4 * 60e6
    for bands in (speed.bands, *speed.families.values()):
        assert 0 < bands["bronze"] < bands["silver"] < bands["gold"] <= 1
