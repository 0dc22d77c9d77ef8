"""Values: seeds, poison, tolerance, NaN, and what is said of wrong ones."""

from __future__ import annotations

import pytest
import torch
from small_exercises import TWICE, make_exercise

from autograder.exercise import Case, Output, Problem, Tolerance
from autograder.judge.picture import picture, svg
from autograder.judge.values import (
    cases_of,
    draw,
    fresh_seed,
    generator_for,
    is_right,
    judge,
    poison,
)
from autograder.judge.words import wrong_message
from autograder.worker.tensors import DTYPES, from_bytes, to_bytes

CASE = Case("a case", {"n": 8})
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def right(
    got: torch.Tensor, reference: torch.Tensor, factor: float = 1.0
) -> list[bool]:
    """Judge each element with the given factor."""
    values = is_right(got, reference, None, Tolerance(factor=factor), CASE)
    return [bool(v) for v in values]


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_tolerance_is_relative_to_eps(dtype: torch.dtype) -> None:
    got = torch.tensor([3.0, -1e-3, 1e3], dtype=dtype)
    whole = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    bits = got.view(whole)
    assert right(got, got.double()) == [True] * 3
    assert right((bits + 1).view(dtype), got.double()) == [True] * 3
    assert right((bits + 4).view(dtype), got.double()) == [False] * 3


def test_nan_meets_nan_and_inf_the_same_inf() -> None:
    nan, inf = torch.nan, torch.inf
    got = torch.tensor([nan, nan, 1.0, inf, inf, -inf, 1e38])
    wanted = torch.tensor([nan, 1.0, nan, inf, -inf, 1.0, inf]).double()
    assert right(got, wanted) == [True, False, False, True, False, False, False]


def test_a_reference_that_overflows_in_the_output_is_infinite_there() -> None:
    got = torch.tensor([torch.inf, 65504.0, torch.nan], dtype=torch.float16)
    assert right(got, torch.tensor([1e6, 1e6, 1e6]).double()) == [True, False, False]


def test_subnormals_count() -> None:
    tiny = torch.finfo(torch.float32).smallest_normal * torch.finfo(torch.float32).eps
    got = torch.tensor([tiny, 0.0, 4 * tiny])
    assert right(got, torch.tensor([tiny, tiny, tiny]).double()) == [True, True, False]


def test_integers_are_exact() -> None:
    got = torch.tensor([2**53 + 1, 5], dtype=torch.int64)
    assert right(got, torch.tensor([2**53 + 1, 6])) == [True, False]


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_poison_is_told_apart_from_answers(dtype: torch.dtype) -> None:
    first = poison("out", dtype, 4, seed=1)
    assert len(first) == 4 * dtype.itemsize
    values = from_bytes(first, dtype, (4,))
    assert to_bytes(values) == first
    if dtype.is_floating_point:
        assert bool(torch.isnan(values).all())
    if dtype.itemsize > 2:
        assert poison("out", dtype, 4, seed=2) != first


@pytest.mark.parametrize("dtype", FLOATS)
def test_reading_the_output_is_told_from_not_writing_it(dtype: torch.dtype) -> None:
    exercise = make_exercise(
        reference=lambda a: {"out": torch.ones(8).double()},
        problem=lambda case, generator: Problem(
            {"out": None}, {"out": Output((8,), dtype)}
        ),
    )
    problem = draw(exercise, CASE, 1, "x")
    before = poison("out", dtype, 8, seed=1)
    added = to_bytes(from_bytes(before, dtype, (8,)) + 1)
    wrong = judge(exercise, CASE, problem, {"out": added}, {"out": before}).wrong
    assert wrong is not None and not wrong.untouched.any()
    if dtype in (torch.float32, torch.float64):  # half types go through fp32
        assert wrong.read_first
        said = wrong_message(wrong, "n = 8", "out[0]", "")
        assert "out[0] was read before it was written, as += reads it" in said
    copied = judge(exercise, CASE, problem, {"out": before}, {"out": before}).wrong
    assert copied is not None and copied.untouched.all() and not copied.read_first


def test_poison_is_wrong_even_where_nan_is_right() -> None:
    exercise = make_exercise(
        reference=lambda a: {"out": torch.full((8,), torch.nan).double()}
    )
    problem = draw(exercise, CASE, 1, "x")
    before = poison("out", torch.float32, 8, seed=1)
    verdict = judge(exercise, CASE, problem, {"out": before}, {"out": before})
    assert verdict.wrong is not None and int(verdict.wrong.untouched.sum()) == 8
    nan = to_bytes(torch.full((8,), torch.nan))
    assert judge(exercise, CASE, problem, {"out": nan}, {"out": before}).right


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8])
def test_a_byte_that_was_there_before_may_be_right(dtype: torch.dtype) -> None:
    every = torch.arange(256).to(torch.uint8).view(dtype)
    exercise = make_exercise(
        reference=lambda a: {"out": every},
        problem=lambda case, generator: Problem(
            {"out": None}, {"out": Output((256,), dtype)}
        ),
    )
    problem = draw(exercise, CASE, 1, "x")
    before = {"out": poison("out", dtype, 256, seed=1)}
    assert judge(exercise, CASE, problem, {"out": to_bytes(every)}, before).right
    wrong = judge(exercise, CASE, problem, before, before).wrong
    assert wrong is not None and int(wrong.untouched.sum()) > 250
    # One that is wrong, alone among others, is not said to be unwritten either.
    turned = judge(exercise, CASE, problem, {"out": to_bytes(every.flip(0))}, before)
    assert turned.wrong is not None and not turned.wrong.untouched.any()
    begun = to_bytes(every)[:100] + before["out"][100:]
    wrong = judge(exercise, CASE, problem, {"out": begun}, before).wrong
    assert wrong is not None and int(wrong.untouched.sum()) >= 155


def test_what_is_read_by_its_bits_is_shown_in_hex() -> None:
    words = torch.tensor([-2, 5], dtype=torch.int32)
    exercise = make_exercise(
        reference=lambda a: {"out": words},
        problem=lambda case, generator: Problem(
            {"out": None}, {"out": Output((2,), torch.int32, bits=True)}
        ),
    )
    problem = draw(exercise, CASE, 1, "x")
    data = {"out": to_bytes(torch.tensor([31, 5], dtype=torch.int32))}
    wrong = judge(exercise, CASE, problem, data, {}).wrong
    assert wrong is not None
    said = wrong_message(wrong, "n = 2", "out[0]", "")
    assert "out[0] is 0x0000001f; wanted 0xfffffffe." in said


def test_draws_repeat_with_the_seed_and_differ_without_it() -> None:
    def drawn(seed: int) -> list[tuple[str, int, bytes]]:
        return [
            (purpose, case.sizes["n"], to_bytes(problem.arguments["x"]))  # type: ignore[arg-type]
            for case, purpose in cases_of(TWICE, seed, public=False)
            for problem in [draw(TWICE, case, seed, purpose)]
        ]

    assert drawn(3) == drawn(3)
    assert drawn(3) != drawn(4)
    assert len(drawn(3)) == 3
    assert len(list(cases_of(TWICE, 3, public=True))) == 2
    values = [data for _, _, data in drawn(3)]
    assert len(set(values)) == len(values)


def test_seeds_are_fresh_and_short() -> None:
    seeds = {fresh_seed() for _ in range(50)}
    assert len(seeds) == 50 and max(seeds) < 2**31


def test_generators_do_not_depend_on_each_other() -> None:
    first = torch.rand(3, generator=generator_for(1, "a"))
    assert torch.equal(first, torch.rand(3, generator=generator_for(1, "a")))
    assert not torch.equal(first, torch.rand(3, generator=generator_for(1, "b")))


def test_the_picture_shows_where() -> None:
    problem = draw(TWICE, Case("n", {"n": 70}), 1, "x")
    x = problem.arguments["x"]
    assert isinstance(x, torch.Tensor)
    got = 2 * x
    got[65] = 7
    before = poison("out", torch.float32, 70, seed=1)
    got[3] = from_bytes(before, torch.float32, (70,))[3]
    verdict = judge(TWICE, CASE, problem, {"out": to_bytes(got)}, {"out": before})
    assert verdict.wrong is not None and verdict.wrong.index == 3
    rows = picture(verdict.wrong)
    assert rows == ["..._" + "." * 60, ".#...."]
    drawn = svg(rows)
    assert drawn.count('class="kw-wrong"') == 1
    assert drawn.count('class="kw-untouched"') == 1
    assert "<title>Where the output is right, wrong, never written</title>" in drawn


def test_a_large_picture_stays_small() -> None:
    n = 100_003
    problem = draw(TWICE, Case("n", {"n": n}), 1, "x")
    x = problem.arguments["x"]
    assert isinstance(x, torch.Tensor)
    got = 2 * x
    got[-1] = 7
    verdict = judge(TWICE, CASE, problem, {"out": to_bytes(got)}, {})
    assert verdict.wrong is not None
    rows = picture(verdict.wrong)
    assert len(rows) <= 16 and max(map(len, rows)) <= 64
    assert "".join(rows).count("#") == 1 and rows[-1].endswith("#")
