"""The gate beside a benchmark: which turns are run, and what the table says of them."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import kernelwright as kw
from autograder.exercise import Problem
from autograder.speed import court as courts
from autograder.speed.court import GpuCourt
from autograder.speed.layout import lay_out
from autograder.speed.rounds import SETTLING_TURNS, LearnerTurn
from autograder.speed.trusted import find_exercise
from benchmarks import _gate_court, _gate_here
from benchmarks import _gate_steadiness as gate
from benchmarks._gate_clock import Clocks, Sample
from benchmarks._gate_court import Heard, OpenCourt
from tests.benchmarks.paper import Clock, time_of


@pytest.mark.parametrize("name", ["mean_abs", "sum_all", "wmma_tile"])
def test_the_gate_finds_the_exercises_in_the_file(name: str) -> None:
    exercise = find_exercise(name, str(_gate_court.WHERE))
    assert exercise.speed is not None
    (cell,) = _gate_court.cells_of(exercise)
    assert (cell["id"], cell["language"]) == (name, "cuda")
    assert f"void {name}(" in cell["source"] and "[hole]" not in cell["source"]
    assert not any(line.startswith("%") for line in cell["source"].splitlines())


# --- the court's turns --------------------------------------------------------------


@pytest.fixture
def court(monkeypatch: pytest.MonkeyPatch) -> OpenCourt:
    """Return a court without processes that notes what it asks for."""
    made = OpenCourt.__new__(OpenCourt)
    made._turn = 0
    made.asked = []  # type: ignore[attr-defined]

    def tell(request: dict[str, Any]) -> dict[str, Any]:
        made.asked.append(request["what"])  # type: ignore[attr-defined]
        return {"ok": True}

    def order(request: dict[str, Any]) -> dict[str, Any]:
        made.asked.append(request["op"])  # type: ignore[attr-defined]
        return {"ok": True, "free": 1 << 40}

    def timed(self: GpuCourt, what: str) -> LearnerTurn:
        made.asked.append(f"timed {what}")  # type: ignore[attr-defined]
        return LearnerTurn(0.02, 0.019)

    def peer(self: GpuCourt) -> tuple[float, float]:
        made.asked.append("peer")  # type: ignore[attr-defined]
        return 0.01, 0.01

    for name, answer in {
        "_tell": tell, "_order": order, "_scalars": list, "_held": nullcontext,
        "_mind_memory": lambda free: None, "_verify": lambda: None,
    }.items():  # fmt: skip
        monkeypatch.setattr(made, name, answer)
    made._peer_overhead_s = 0.0
    monkeypatch.setattr(GpuCourt, "_learner_turn", timed)
    monkeypatch.setattr(GpuCourt, "_peer_turn", peer)
    return made


FRESH = ["load", "refresh", "wake"]


@pytest.mark.parametrize(
    ("way", "between"),
    [
        ("gate", [*FRESH, "timed turn"]),
        ("small", [*FRESH, "timed turn"]),
        ("touched", [*FRESH, "rehearse", "timed turn"]),
        ("warmed", [*FRESH, "turn", "turn", "turn", "timed turn"]),
    ],
)
def test_a_way_prepares_the_turn_and_nothing_else(
    court: Any, way: str, between: list[str]
) -> None:
    (heard,) = _gate_court.rounds_of(court, way, 1)
    assert court.asked == ["peer", *between, "peer"]
    assert (heard.learner, heard.events) == (0.02, 0.019)
    assert (heard.before, heard.after) == (0.01, 0.01)
    assert heard.beside[0] <= heard.beside[1] <= heard.own[0] <= heard.own[1]


def test_a_settled_peer_has_run_for_a_while(court: Any) -> None:
    list(_gate_court.rounds_of(court, "settled", 1))
    peers = ["peer"] * (SETTLING_TURNS + 1)
    assert court.asked == [*peers, *FRESH, "timed turn", *peers]


def test_a_court_of_few_sets_leaves_the_gates_share_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[float] = []

    class Small(OpenCourt):
        def __init__(self, *_: object, **__: object) -> None:
            seen.append(courts._PART_OF_MEMORY)

        def admit(self) -> None:
            seen.append(courts._PART_OF_MEMORY)

        def close(self) -> None:
            seen.append(-1)

    monkeypatch.setattr(_gate_court, "OpenCourt", Small)
    server: Any = None
    with _gate_court.opened(gate.BY_NAME["sum_all"], server, 0.06):
        pass
    assert seen == [0.06, courts._PART_OF_MEMORY, -1]


def test_a_hearing_tells_a_row_for_each_way(
    court: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shares: list[float | None] = []

    def opened(exercise: Any, server: Any, part: float | None) -> Any:
        shares.append(part)
        return nullcontext(court)

    monkeypatch.setattr(_gate_court, "opened", opened)
    monkeypatch.setattr("autograder.workers.ForkServer.start", lambda self: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (90_000_000_000, 0))
    court.setting = {"calls": 4}
    gate.in_court(time.time() + 60)
    told = [json.loads(line) for line in capsys.readouterr().out.split("\n") if line]
    assert not [message for message in told if "trouble" in message]
    rows = [message["row"] for message in told if "row" in message]
    assert [(row["exercise"], row["way"]) for row in rows] == [
        (name, way) for name in gate.BY_NAME for way in gate.ways_of("court", name)
    ]
    assert shares == [None, 0.1, None, 0.1, None]
    assert {row["rounds"] for row in rows} == {gate.ROUNDS}
    assert rows[0]["events_ms"] == pytest.approx(19 / 4)
    assert rows[0]["ratio"] == pytest.approx(0.5)


# --- in one process -----------------------------------------------------------------


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a stand of three sets on the CPU; turns are noted, and run."""
    problem = Problem({"x": torch.ones(8), "out": None, "n": 8},
                      gate.BY_NAME["sum_all"].problem(
                          gate.BY_NAME["sum_all"].cases[6], torch.Generator()
                      ).outputs)  # fmt: skip
    layout = lay_out(problem, outputs=True)
    stand: Any = SimpleNamespace(
        exercise=gate.BY_NAME["sum_all"],
        layout=layout,
        calls=3,
        memory=torch.zeros(3 * layout.stride, dtype=torch.uint8),
        constant_scalars=lambda: {"n": 8},
        refresh=lambda turn: asked.append("refresh"),
        work=lambda: asked.append("peer"),
        wake=lambda: None,
        arguments=lambda call: {"x": torch.ones(8)},
    )
    asked: list[Any] = []

    def kernel(x: torch.Tensor, out: torch.Tensor, n: int) -> None:
        assert (x.shape, out.shape, n) == ((8,), (1,), 8)
        asked.append(x.data_ptr())

    def run_turn(turn: Any) -> float:
        turn()
        return 0.5

    monkeypatch.setattr(_gate_here, "run_turn", run_turn)
    monkeypatch.setattr(kw, "bench", Clock())
    made: Any = _gate_here.Here(stand, kernel, _gate_here._arguments(stand))
    made.asked = asked
    made.at = [stand.memory.data_ptr() + call * layout.stride for call in range(3)]
    return made


@pytest.mark.parametrize(
    ("way", "before"), [("here", ["refresh"]), ("here_again", ["refresh", "3 turns"])]
)
def test_a_turn_here_meets_every_set_once(
    here: Any, way: str, before: list[str]
) -> None:
    heard = list(_gate_here.rounds_here(here, way, 2))
    turns = 3 * here.at if "3 turns" in before else []
    assert here.asked == 2 * ["peer", "refresh", *turns, *here.at, "peer"]
    assert [one.events for one in heard] == [0.5, 0.5]


def test_few_sets_are_met_again_and_again(here: Any) -> None:
    list(_gate_here.rounds_here(here, "here_few", 1))
    one, two, _ = here.at
    assert here.asked == [one, two, one, one, two, one]


def test_as_a_benchmark_times_it(here: Any) -> None:
    heard = list(_gate_here.as_benchmarked(here, 2))
    ms = [time_of(call) for call in range(1, 7)]
    assert [1e3 * one.learner / 3 for one in heard] == pytest.approx([ms[1], ms[4]])
    assert [1e3 * one.before / 3 for one in heard] == pytest.approx([ms[0], ms[3]])


# --- what is shown ------------------------------------------------------------------


def heard_at(at: float, learner: float, before: float, after: float) -> Heard:
    return Heard(learner, learner, before, after, (at, at + 1), (at + 1, at + 2))


def test_a_row_is_the_median_of_its_rounds_and_of_their_clocks() -> None:
    clocks = Clocks([Sample(i + 0.5, 1000 + 100 * i, 2619, 300 + i) for i in range(6)])
    heard = [heard_at(0, 0.4, 0.1, 0.3), heard_at(2, 0.2, 0.2, 0.2)]
    row = gate.row_of("mean_abs", "gate", 4, heard, clocks)
    assert row["ms"] == pytest.approx(75)
    assert row["peer_ms"] == pytest.approx(50)
    assert row["ratios"] == pytest.approx([0.5, 1.0])
    assert row["ratio"] == pytest.approx(0.75)
    assert row["gbps"] == pytest.approx(4 * 16384 * 8192 / 75e6)
    assert (row["sm_mhz_own"], row["sm_mhz_beside"]) == (1100, 1200)
    assert row["watts_own_each"] == [300, 302]
    assert " 0.750" in gate.line(row) and "mean_abs   gate" in gate.line(row)


def test_a_clock_that_is_not_known_is_no_number() -> None:
    assert Clocks().median((0, 1), "sm_mhz") is None
    few = Clocks([Sample(0.0, 345, 2619, 90)])
    assert few.median((0.01, 0.02), "sm_mhz") == 345, "the nearest"
    assert few.median((5, 6), "sm_mhz") is None, "none is near"
    row = gate.row_of("sum_all", "gate", 4, [heard_at(0, 1, 1, 1)], Clocks())
    assert row["sm_mhz_own"] is None
    assert len(gate.line(row)) == len(gate.HEAD)


CHILD = """
import json, sys, time
def tell(**message):
    print(json.dumps(message), flush=True)
tell(begin="sum_all: here", limit=20)
tell(row={row}, limit=20)
if sys.argv[1] == "court":
    tell(begin="mean_abs: gate", limit=0.5)
    time.sleep(60)
"""


def test_a_part_that_hangs_is_named_and_the_rest_is_stored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = gate.row_of("sum_all", "here", 4, [heard_at(0, 1, 1, 1)], Clocks())
    program = tmp_path / "child.py"
    program.write_text(CHILD.format(row=json.loads(json.dumps(row))))

    def command(part: str, until: float) -> Sequence[str]:
        return [sys.executable, str(program), part]

    began = time.monotonic()
    record = gate.measure(20, command)
    assert time.monotonic() - began < 15
    assert gate.report(record, tmp_path / "out") == 1
    stored = json.loads((tmp_path / "out" / "gate_steadiness.json").read_text())
    assert [one["way"] for one in stored["rows"]] == ["here", "here"]
    (trouble,) = stored["troubles"]
    assert trouble.startswith("court gave no answer at mean_abs: gate")
    assert "mean_abs: gate" in stored["left_out"]
    assert "sum_all: here" not in stored["left_out"]
    assert "left out: mean_abs: here" in capsys.readouterr().out


def test_what_goes_wrong_with_one_exercise_does_not_stop_the_next(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tried: list[str] = []

    def of(exercise: Any) -> Any:
        tried.append(exercise.id)
        raise ValueError("no room")

    monkeypatch.setattr(_gate_here.Here, "of", of)
    gate.in_one_process(time.time() + 60)
    assert tried == list(gate.BY_NAME)
    told = [json.loads(line) for line in capsys.readouterr().out.split("\n") if line]
    troubles = [message["trouble"] for message in told if "trouble" in message]
    assert troubles == [f"{name}: here: ValueError: no room" for name in tried]


def test_each_exercise_is_timed_where_its_doubt_is() -> None:
    for name in gate.BY_NAME:
        ways = [way for part, _ in gate.PARTS for way in gate.ways_of(part, name)]
        assert len(set(ways)) == len(ways)
        assert set(ways) <= gate.TITLES.keys()
        assert {"gate", "here", "bench"} <= set(ways)
