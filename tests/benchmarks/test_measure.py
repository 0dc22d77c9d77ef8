"""Candidates in turn, and what their rows say, by a clock whose times are known."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import kernelwright as kw
from benchmarks import _command, _peers
from benchmarks._candidates import Candidate, median_ratio, row_of, time_in_turn


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let a candidate's run give the ms of each of its calls; note who was asked."""
    turns: list[str] = []

    def bench(run: Iterator[float], *given: str, **_: object) -> SimpleNamespace:
        turns.append(given[0])
        return SimpleNamespace(median_ms=next(run))

    monkeypatch.setattr(kw, "bench", bench)
    return turns


def timed(name: str, *ms: float, moved: int = 0, **more: Any) -> Candidate:
    """Name a candidate whose calls take so many ms, one after another."""
    run: Any = iter(ms)
    return Candidate(name, name.upper(), run, (name,), moved, **more)


def test_candidates_are_timed_in_turn(asked: list[str]) -> None:
    todo = [timed("a", 9, 1, 3), timed("b", 9, 2, 4)]
    assert time_in_turn(todo, 2, 0.1, warm_ups=1) == {"a": [1, 3], "b": [2, 4]}
    assert asked == ["a", "b"] * 3


def test_two_candidates_of_one_name_are_refused(asked: list[str]) -> None:
    with pytest.raises(ValueError, match="one name: a"):
        time_in_turn([timed("a", 1), timed("b", 1), timed("a", 1)], 1, 0.1)
    assert not asked


def test_a_row_says_what_was_due_and_how_fast_it_was() -> None:
    candidate = timed("a", moved=6_000_000, flops=3e9, facts={"n": 5}, dtype="int8")
    assert row_of(candidate, [4.0, 2.0, 3.0]) == {
        "name": "a",
        "label": "A",
        "dtype": "int8",
        "n": 5,
        "median_ms": 3.0,
        "low_ms": 2.0,
        "high_ms": 4.0,
        "bytes": 6_000_000,
        "gbps": 2.0,
        "flops": 3e9,
        "tflops": 1.0,
    }
    assert not {"bytes", "gbps", "flops", "tflops"} & row_of(timed("a"), [1.0]).keys()


def test_a_ratio_is_the_median_of_the_rounds() -> None:
    # The medians alone, 2 and 3, would say two thirds.
    assert median_ratio([1, 2, 9], [2, 4, 3]) == 0.5


def test_a_ratio_is_to_the_copy_of_the_nearest_size(asked: list[str]) -> None:
    small = timed("copy_100", 1, 1, 1, moved=200)
    large = timed("copy_1000", 4, 4, 4, moved=2000)
    near = timed("copy_chunked", 2, 2, 2, moved=210)
    far = timed("far", 2, 2, 2, moved=1900)
    rows = _peers.beside([small, large, near, far], 3)
    ratios = {row["name"]: row["ratio"] for row in rows}
    assert ratios["copy_100"] == ratios["copy_1000"] == 1
    assert ratios["copy_chunked"] == pytest.approx(210 / 2 / 200)
    assert ratios["far"] == pytest.approx(1900 / 2 / 500)
    assert _peers.copy_gbps(rows) == pytest.approx(2000 / 4 / 1e6), (
        "the copy nearest to 1 GiB"
    )


def test_a_peer_is_the_best_of_each_round(
    asked: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("one", "other", "absent")
    todo = [
        timed("copy", 1, 1, 1, moved=100),
        timed("ours", 2, 2, 2, moved=100, peers=names),
        timed("one", 1, 4, 4, moved=100),
        timed("other", 4, 1, 2, moved=100),
    ]
    rows = _peers.beside(todo, 3, key="of_best")
    assert [row.get("of_best") for row in rows] == [None, 0.5, None, None]
    assert "of_best 0.500" in capsys.readouterr().out


def test_a_product_is_compared_with_its_one_peer(asked: list[str]) -> None:
    todo = [
        timed("library", 1, 2, 3, flops=1e9, peers=("library",)),
        timed("ours", 4, 4, 4, flops=1e9, peers=("library",)),
    ]
    rows = _peers.beside(todo, 3, 0.1)
    assert [(row["peer"], row["ratio"]) for row in rows] == [
        ("library", 1),
        ("library", 0.5),
    ]


def test_ours_is_compared_with_eager_compiled_and_the_formula() -> None:
    times = {"f": 2, "f_eager": 8, "f_compile": 6, "f_formula": 20, "g": 1}
    rows = [{"name": k, "median_ms": ms, "ratio": 1.0} for k, ms in times.items()]
    _peers.compare_with_torch(rows)
    assert [rows[0][key] for key in ("of_eager", "of_peer", "of_formula")] == [4, 3, 10]
    assert all(row.keys() == {"name", "median_ms", "ratio"} for row in rows[1:])


def test_a_backward_pass_takes_another_graph_each_time() -> None:
    seen: list[int] = []

    def drawn() -> _peers.Graph:
        leaf, place = torch.ones(2, requires_grad=True), next(places)
        leaf.register_hook(lambda grad: seen.append(place))
        return (leaf,), torch.ones(2)

    places = iter(range(2))
    run = _peers.backward_in_turn(lambda leaf: 3 * leaf, drawn)
    for _ in range(3):
        run()
    assert seen == [0, 1, 0]


# --- the command line ---------------------------------------------------------------

FLOORS = {"nvidia-h200": {"fast": 0.9, "slow": 0.9}}


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Say that there is an H200."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H200")
    monkeypatch.setattr(kw, "device", lambda: SimpleNamespace(driver=None))


def told(monkeypatch: pytest.MonkeyPatch, *words: str) -> argparse.Namespace:
    monkeypatch.setattr(sys, "argv", ["bench", *words])
    parser = _command.command_line("About it.")
    parser.add_argument("--short", action="store_true")
    return parser.parse_args()


def rows(options: argparse.Namespace) -> _command.Measured:
    fast = {"name": "fast", "ratio": 0.95}
    yield [fast], {"copy_gbps": 1.0}
    if not options.short:
        yield [fast, {"name": "slow", "ratio": 0.5}], {"copy_gbps": 2.0}


def test_only_correct_times_nothing(monkeypatch: pytest.MonkeyPatch, gpu: None) -> None:
    seen: list[str] = []
    options = told(monkeypatch, "--only-correct")
    assert _command.run("x", options, seen.append, pytest.fail, FLOORS) == 0
    assert seen == ["cuda"]


def test_without_a_gpu_nothing_is_timed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    seen: list[str] = []
    options = told(monkeypatch, "--check")
    assert _command.run("x", options, seen.append, pytest.fail, FLOORS) == 0
    assert seen == ["cpu"]
    assert "nothing was timed" in capsys.readouterr().out


def test_a_wrong_value_is_never_timed(
    monkeypatch: pytest.MonkeyPatch, gpu: None
) -> None:
    def wrong(device: str) -> None:
        raise AssertionError("off by 3")

    with pytest.raises(AssertionError, match="off by 3"):
        _command.run("x", told(monkeypatch), wrong, pytest.fail, FLOORS)


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ((), 0, "stored in"),
        (("--check",), 1, "slow: ratio 0.5, floor 0.9"),
        (("--check", "--short"), 1, "slow: ratio not measured, floor 0.9"),
    ],
)
def test_the_last_rows_are_stored_and_judged(
    words: tuple[str, ...],
    code: int,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    gpu: None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = told(monkeypatch, *words, "--out", str(tmp_path))
    assert _command.run("x", options, str, rows, FLOORS) == code
    assert says in capsys.readouterr().out
    record = json.loads((tmp_path / "x-nvidia-h200.json").read_text())
    assert [row["name"] for row in record["rows"]] == ["fast", "slow"][
        : 2 - options.short
    ]
    assert record["copy_gbps"] == 2.0 - options.short
    assert record["command"] == " ".join(["python -m benchmarks.x", *words])


def test_what_a_run_cut_short_has_measured_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpu: None
) -> None:
    def cut(options: argparse.Namespace) -> _command.Measured:
        yield [{"name": "fast"}], {}
        raise KeyboardInterrupt

    options = told(monkeypatch, "--out", str(tmp_path))
    with pytest.raises(KeyboardInterrupt):
        _command.run("x", options, str, cut, FLOORS)
    record = json.loads((tmp_path / "x-nvidia-h200.json").read_text())
    assert record["rows"] == [{"name": "fast"}]


def test_where_nothing_is_measured_nothing_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpu: None
) -> None:
    options = told(monkeypatch, "--check", "--out", str(tmp_path))
    assert _command.run("x", options, str, lambda _: (), FLOORS) == 0
    assert not list(tmp_path.iterdir())


def test_a_device_without_floors_is_not_judged(
    monkeypatch: pytest.MonkeyPatch, gpu: None, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Another")
    assert _command.judge([], FLOORS, "ratio") == 0
    assert "no floors are known" in capsys.readouterr().out
