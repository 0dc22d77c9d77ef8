"""Inputs that are new at every call, and the same again when they are checked."""

from __future__ import annotations

import pytest
import torch

from autograder.exercise import (
    Case,
    Exercise,
    Launch,
    Output,
    Problem,
    Speed,
    Tolerance,
)
from autograder.exercises import all_exercises
from autograder.judge.speed.draws import Draws, seed_for
from autograder.judge.speed.layout import lay_out, scalars_of
from autograder.worker.places import Layout, read_scalar

N = 1000


def toy(problem, reference=None, scale=None) -> Exercise:
    return Exercise(
        id="toy",
        stem="toy",
        title="a toy",
        kind="core",
        points=1,
        language="cuda",
        entry="kernel",
        name="toy",
        source="",
        goal="",
        requirements=(),
        problem=problem,
        reference=reference or (lambda a: {"out": a["x"].double() * 2}),
        cases=(),
        hidden=lambda generator: (),
        tolerance=Tolerance(1.0, scale=scale),
        hints=("", "", ""),
        onward="",
        speed=Speed(
            peer="copy",
            case=Case("n", {"n": N}),
            bytes_moved=lambda case: 8 * N,
            bands={},
        ),
    )


def plain(case, generator):
    x = torch.randn(case.sizes["n"], generator=generator)
    a = float(torch.rand((), generator=generator))
    return Problem(
        {"a": a, "x": x, "out": None, "n": N},
        {"out": Output((N,), torch.float32)},
        Launch((4,), (256,)),
    )


def cpu_only(case, generator):
    if generator.device.type != "cpu" or torch.get_default_device().type != "cpu":
        raise RuntimeError("not here")
    return plain(case, generator)


def test_each_call_is_new_and_the_same_call_is_the_same():
    draws = Draws(toy(plain), seed=3, device="cpu")
    first, again = draws.problem(1, 2), draws.problem(1, 2)
    assert torch.equal(first.arguments["x"], again.arguments["x"])
    assert first.arguments["a"] == again.arguments["a"]
    for other in (draws.problem(1, 3), draws.problem(2, 2)):
        assert not torch.equal(first.arguments["x"], other.arguments["x"])
    other = Draws(toy(plain), seed=4, device="cpu").problem(1, 2)
    assert not torch.equal(first.arguments["x"], other.arguments["x"])


def test_seeds_depend_on_every_part():
    seeds = {seed_for(*parts) for parts in ((1, 2, 3), (1, 2, 4), (12, 3), (1, 23))}
    assert len(seeds) == 4
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_what_cannot_be_drawn_on_the_device_is_rolled(monkeypatch):
    # Standing in for a device: drawing with a generator of its own fails.
    monkeypatch.setattr(Draws, "_draws_on_device", lambda self: False)
    draws = Draws(toy(plain), seed=3, device="cpu")
    assert not draws.on_device
    first, again, other = (draws.problem(*p) for p in ((1, 2), (1, 2), (2, 2)))
    assert torch.equal(first.arguments["x"], again.arguments["x"])
    assert not torch.equal(first.arguments["x"], other.arguments["x"])
    # The same values in another order: whatever holds for them still holds.
    assert torch.equal(first.arguments["x"].sort()[0], other.arguments["x"].sort()[0])


def test_the_right_answer_and_its_scale():
    exercise = toy(plain, scale=lambda a: {"out": a["x"].abs() + 1})
    draws = Draws(exercise, seed=3, device="cpu")
    problem = draws.problem(0, 0)
    want, scale = draws.expected(problem)
    assert want["out"].dtype == torch.float64
    assert torch.equal(want["out"], problem.arguments["x"].double() * 2)
    assert torch.equal(scale["out"], problem.arguments["x"].abs() + 1)


def test_without_a_scale_the_answer_is_its_own():
    draws = Draws(toy(plain), seed=3, device="cpu")
    want, scale = draws.expected(draws.problem(0, 0))
    assert torch.equal(want["out"], scale["out"])


def test_layout_puts_every_tensor_in_its_own_place():
    problem = plain(Case("n", {"n": N}), torch.Generator())
    layout = lay_out(problem, outputs=True)
    assert [place.name for place in layout.places] == ["x", "out"]
    assert layout.order == ("a", "x", "out", "n")
    assert layout.stride % 512 == 0 and layout.stride >= 8 * N
    memory = torch.zeros(3 * layout.stride, dtype=torch.uint8)
    for number in range(3):
        for place in layout.places:
            layout.view(memory, number, place).fill_(number + 1)
    x, out = layout.places
    assert layout.view(memory, 0, x).shape == (N,)
    assert [float(layout.view(memory, k, out)[-1]) for k in range(3)] == [1, 2, 3]
    assert Layout.from_json(layout.to_json()) == layout


def test_a_functions_outputs_have_no_place():
    problem = plain(Case("n", {"n": N}), torch.Generator())
    assert [p.name for p in lay_out(problem, outputs=False).places] == ["x"]


def test_strided_arguments_keep_their_strides():
    x = torch.arange(12.0).reshape(3, 4).t()
    problem = Problem({"x": x}, {"out": Output((3,), torch.float32)})
    layout = lay_out(problem, outputs=False)
    memory = torch.zeros(layout.stride, dtype=torch.uint8)
    view = layout.view(memory, 0, layout.places[0])
    view.copy_(x)
    assert view.stride() == x.stride() and torch.equal(view, x)


@pytest.mark.parametrize("value", [3, 0.1, -1e-30, float("inf")])
def test_scalars_survive_exactly(value):
    problem = Problem({"a": value}, {})
    assert read_scalar(scalars_of(problem)["a"]) == value


PEER_MOVES = {"int4_gemm": 4}
"""How many times an answer's bytes a peer moves, which limits how far it is beaten."""


@pytest.mark.parametrize(
    "name", [e.id for e in all_exercises().values() if e.speed is not None]
)
def test_the_courses_exercises_have_what_a_hearing_needs(name):
    exercise = all_exercises()[name]
    speed = exercise.speed
    if speed.flops is None:
        assert speed.bytes_moved(speed.case) >= 256 * 2**20
    else:
        # Bound by operations: 70 us at the fastest rate of a data sheet, 989 TFLOP/s.
        # Calls enough to pass the caches make a turn whatever one of them moves.
        assert speed.flops(speed.case) >= 2**36
    values = [speed.bands[band] for band in ("bronze", "silver", "gold")]
    most = PEER_MOVES.get(name, 1)
    assert values == sorted(values) and values[0] > 0 and values[-1] <= most
    assert exercise.entry == "function" or exercise.language == "cuda"


def test_an_output_without_a_scale_is_held_against_its_values() -> None:
    def reference(arguments):
        return {"out": arguments["x"].double() * 2, "kept": torch.tensor([4])}

    exercise = toy(plain, reference, lambda a: {"out": torch.ones(N)})
    draws = Draws(exercise, seed=3, device="cpu")
    want, scale = draws.expected(draws.problem(0, 0))
    assert scale.keys() == want.keys()
    assert int(scale["kept"]) == 4
