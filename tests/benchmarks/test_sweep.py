"""Sweeps: what they try is right, and what they print of it, on any machine."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
import torch

import kernelwright as kw
from benchmarks import _sweep
from benchmarks._candidates import Candidate
from benchmarks.softmax import settings
from solutions.softmax import launch
from tests.benchmarks.paper import PREPARED, gpu_on_paper

SWEPT = [
    path.stem
    for path in sorted(Path(_sweep.__file__).parent.glob("[a-z]*.py"))
    if "def sweeps()" in path.read_text()
]


def nothing(*_: object, **__: object) -> None:
    """Stand for a launch."""


def first(x: torch.Tensor, *_: object) -> torch.Tensor:
    """Stand for a function whose result has the shape of its first tensor."""
    return torch.empty_like(x)


# What a family launches otherwise than by kernels that it compiles itself.
LAUNCHES = {
    "softmax": {"launch.forward_into": nothing, "launch.backward_into": nothing},
    "fusion": {"launch.computed": lambda text, given, seed: first(*given)},
    "int4": {"by_plan": lambda plan, x, *_: first(x)},
    "matmul": {"family._launch": nothing},
    "transpose": {"family.launch_plan": nothing},
    "tensor_cores": {"family.launch": nothing},
    "flash_attention": {"launch_mma": nothing},
}


# Whose names a sweep sets: its process ends with it, and a test's goes on.
SET = {"softmax": "launch", "fusion": "launch", "int4": "product"}


@pytest.mark.parametrize("stem", [s for s in SWEPT if s != "moe"])
def test_all_of_a_sweep_is_timed(
    stem: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = import_module(f"benchmarks.{stem}")
    for path, stands in LAUNCHES[stem].items():
        monkeypatch.setattr(f"{bench.__name__}.{path}", stands)
    PREPARED.get(stem, nothing)(bench, monkeypatch)
    monkeypatch.setattr(kw.cuda, "backend", lambda: "gpu")
    monkeypatch.setattr(_sweep, "APART", ())
    monkeypatch.setattr(sys, "argv", ["sweep", stem])
    names = vars(getattr(bench, SET.get(stem, "_peers")))
    with mock.patch.dict(names), gpu_on_paper(monkeypatch):
        assert _sweep.main() == 0
    said = capsys.readouterr().out
    assert said.count("== ") == len(bench.sweeps())
    assert " ms" in said and "FAILS" not in said and "WRONG" not in said


def given(name: str, ms: float, value: float = 1.0) -> Candidate:
    """Name a setting that takes so many ms and returns this value."""
    return Candidate(name, name, lambda _: torch.tensor([value]), (ms,), flops=1e9)


def test_the_fastest_is_printed_first_and_what_is_wrong_not_timed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def timing(run: object, ms: float, **_: object) -> SimpleNamespace:
        return SimpleNamespace(median_ms=ms)

    def fail(_: float) -> None:
        raise RuntimeError("too many resources\nand more")

    monkeypatch.setattr(kw, "bench", timing)
    settings = [given("today", 2), given("fast", 1), given("wrong", 1, value=2.0)]
    settings.append(Candidate("large", "large", fail, (1,)))
    right = torch.ones(1).double()
    _sweep.do(_sweep.Sweep("plans", settings, [given("library", 4)], right))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines[:3]] == [
        ["==", "plans"], ["WRONG", "wrong:", "off"], ["FAILS", "large:", "too"],
    ]  # fmt: skip
    assert [line.split()[0] for line in lines[3:]] == ["fast", "today", "library"]
    assert "4.00 x library" in lines[3] and "2.00 x today" in lines[3]


@pytest.mark.parametrize("way", ["forward", "backward"])
def test_what_is_tried_is_right(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    y, grad = torch.softmax(torch.randn(2, 5000), 1), torch.randn(2, 5000)
    given = (grad,) if way == "forward" else (y, grad)
    right = torch.softmax(grad, 1)
    if way == "backward":
        right = y * (grad - (y * grad).sum(1, keepdim=True))
    named = dict(settings(5000, len(given)))
    kinds = {name.split(",")[0]: name for name in named}
    assert {"whole rows", "pieces of 4096", "pieces of 8192"} <= kinds.keys()
    # Each is a value of a name that the launch has.
    assert all(hasattr(launch, name) for one in named.values() for name in one)
    for name in kinds.values():
        with monkeypatch.context() as patch:
            for key, value in named[name].items():
                patch.setattr(launch, key, value)
            out = torch.full_like(grad, torch.nan)
            into = launch.forward_into if way == "forward" else launch.backward_into
            into(*(t.unsqueeze(-1) for t in (*given, out)))
            assert torch.allclose(out, right, atol=1e-6), name


def test_no_setting_asks_for_more_than_registers_hold() -> None:
    assert not any("whole" in name for name, _ in settings(262_144, 1))
    assert not any("16384, 4 warps" in name for name, _ in settings(262_144, 2))
    assert any("16384, 8 warps" in name for name, _ in settings(262_144, 1))
