"""Softmax's settings: which are tried, and what becomes of a wrong or hanging one."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import kernelwright as kw
from benchmarks import _peers, _tune_group, _tune_settings
from benchmarks import _tune_softmax as tuning
from benchmarks._tune_group import Group, run_group
from benchmarks._tune_settings import Setting, tried
from benchmarks._tune_watch import watch
from solutions.softmax import launch
from tests.benchmarks.paper import Clock, gpu_on_paper

ROOT = Path(__file__).parents[2]
# Triton runs where its kernels do: interpreted without a GPU, compiled with one.
DEVICE = "cuda" if kw.cuda.backend() == "gpu" else "cpu"
FORWARD = Group(3, 40, "float32", "forward", peers=False)
BACKWARD = Group(3, 40, "float32", "backward", peers=False)


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    yield
    _tune_settings.put(None)


@pytest.fixture(autouse=True)
def outlives_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the process of the tests not end with whoever started it."""
    monkeypatch.setattr(_tune_group, "be_watched", lambda: None)


# --- settings -----------------------------------------------------------------------


def test_todays_comes_first_and_once() -> None:
    named = tried(65_536, "forward", 2)
    today = "pieces of 8192, together, 4 warps, 56 registers"
    assert next(iter(named)) == f"today: {today}"
    assert named[f"today: {today}"] is None
    assert today not in named
    assert "pieces of 8192, together, 4 warps" in named
    assert "pieces of 4096, launch by launch, 8 warps" in named


@pytest.mark.parametrize(("length", "way"), [(8192, "forward"), (262_144, "backward")])
def test_no_setting_asks_for_more_than_registers(length: int, way: Any) -> None:
    for setting in tried(length, way, 4).values():
        if setting is None:
            continue
        numbers = (setting.piece or length) * _tune_settings.ARRAYS[way]
        assert numbers <= 48 * 1024 and numbers <= 128 * 32 * setting.warps


def test_programs_that_wait_fit_on_the_gpu_together() -> None:
    for name, setting in tried(2**20, "forward", 2).items():
        if setting and setting.form == "together":
            assert 2**20 // setting.piece <= _tune_settings.MOST_PIECES < 132, name


def test_a_setting_is_what_the_launch_then_uses() -> None:
    before = {name: getattr(launch, name) for name in _tune_settings._NAMES}
    _tune_settings.put(Setting("whole", 32))
    assert launch.rows_plan(8192) == (8192, 1, 32)
    assert launch.REGISTERS > 4 * 2**20
    _tune_settings.put(Setting("together", 8, 4096))
    assert (launch.PIECE, launch.REGISTERS) == (4096, 0)
    assert set(launch.FORWARD.values()) == {launch.Crew(8)}
    _tune_settings.put(Setting("together", 4, 8192, 56))
    assert launch.BACKWARD[2].options() == {"num_warps": 4, "maxnreg": 56}
    assert launch.MOST_TOGETHER == 128
    _tune_settings.put(Setting("launches", 8, 16_384))
    assert (launch.PIECE, launch.MOST_TOGETHER) == (16_384, 0)
    _tune_settings.put(None)
    assert {name: getattr(launch, name) for name in before} == before


@pytest.mark.parametrize("length", [1024, 8192, 32_768, 65_536, 262_144, 2**20])
@pytest.mark.parametrize("way", ["forward", "backward"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_todays_setting_is_the_launchs_own_choice(
    dtype: torch.dtype, length: int, way: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ask the launch itself, on a GPU of 132 SMs, which kernel it takes."""
    seen: list[tuple[str, dict[str, Any]]] = []

    class Kernel:
        def __init__(self, name: str) -> None:
            self.name = name

        def __getitem__(self, grid: object) -> Callable[..., None]:
            return lambda *_, **given: seen.append((self.name, given))

    for module in (launch.kernels, launch.side_by_side):
        for name in dir(module):
            if name.endswith("_kernel"):
                monkeypatch.setattr(module, name, Kernel(name))
    monkeypatch.setattr(
        launch, "_can_meet", lambda x, pieces: pieces <= min(launch.MOST_TOGETHER, 132)
    )
    tensors = [torch.empty(2, length, dtype=dtype, device="meta") for _ in range(3)]
    _tune_settings.run(None, way, *tensors[: 1 + _tune_settings.ARRAYS[way]])
    first, given = seen[0]
    form = "launches"
    if first.startswith("rows"):
        form = "whole"
    elif first in ("forward_kernel", "backward_kernel"):
        form = "together"
    piece = 0 if form == "whole" else given["BLOCK"]
    wanted = Setting(form, given["num_warps"], piece, given.get("maxnreg"))  # type: ignore[arg-type]
    assert _tune_settings.of_today(length, way, dtype.itemsize) == wanted


# --- one group, with the kernels interpreted ----------------------------------------


@pytest.fixture
def messages(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Collect what a group tells; times come from a clock that is known."""
    monkeypatch.setattr(kw, "bench", Clock())
    return []


@pytest.mark.parametrize("group", [FORWARD, BACKWARD], ids=lambda g: g.way)
def test_a_wrong_setting_is_named_and_the_rest_is_timed(
    group: Group, messages: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    named: dict[str, Setting | None] = {
        "today": None,
        "in pieces": Setting("launches", 8, 16),
        "one piece short": Setting("launches", 8, 8),
        "no kernel": Setting("whole", 3),
    }
    real = _tune_settings.run

    def run(setting: Setting | None, way: Any, *tensors: torch.Tensor) -> None:
        if setting == named["no kernel"]:
            raise RuntimeError("num_warps must be a power of 2\nand more")
        real(setting, way, *tensors)
        if setting == named["one piece short"]:
            tensors[-1][-1, -8:] = torch.nan

    monkeypatch.setattr(_tune_settings, "run", run)
    run_group(
        group, named, rounds=2, device=DEVICE, tell=lambda **m: messages.append(m)
    )
    assert [m["right"] for m in messages if "right" in m] == ["today", "in pieces"]
    assert {m["wrong"]: m["why"] for m in messages if "wrong" in m} == {
        "one piece short": "off by inf eps of the largest value",
        "no kernel": "RuntimeError: num_warps must be a power of 2",
    }
    (timed,) = [m for m in messages if "times" in m]
    assert {k: len(v) for k, v in timed["times"].items()} == {
        "copy": 2, "today": 2, "in pieces": 2,
    }  # fmt: skip
    assert timed["bytes"] == (2 if group is FORWARD else 3) * 3 * 40 * 4


def test_an_output_that_is_slightly_off_is_wrong() -> None:
    given = _tune_group.draw(FORWARD, DEVICE)
    assert _tune_group.error_of(FORWARD, None, given) < 2
    off = _tune_group.Given(given.tensors, given.right * (1 + 1e-5))
    assert _tune_group.error_of(FORWARD, None, off) > 50


@pytest.mark.parametrize("way", ["forward", "backward"])
def test_peers_do_the_same_work(
    way: Any, messages: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_peers, "compiled", lambda function: function)
    group = Group(5, 33, "float32", way)
    given = _tune_group.draw(group, DEVICE)
    peers = list(_tune_group.beside(group, given, lambda **_: None, DEVICE))
    assert [peer.name for peer in peers] == ["copy", "torch.softmax", "torch.compile"]
    assert 2 * peers[0].arguments[0].nbytes == group.bytes_moved
    for peer in peers[1:]:
        torch.testing.assert_close(peer.run(*peer.arguments).double(), given.right)


def test_who_is_timed_is_said_before(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[dict[str, Any]] = []

    def bench(run: Callable[..., object], *given: Any, **_: object) -> Any:
        run(*given)
        run(*given)
        return Clock()(run)

    monkeypatch.setattr(kw, "bench", bench)
    run_group(
        FORWARD,
        {"today": None, "in pieces": Setting("launches", 8, 16)},
        rounds=2,
        device=DEVICE,
        tell=lambda **message: told.append(message),
    )
    turns = [message["begin"] for message in told if "begin" in message]
    assert turns[3:] == ["copy", "today", "in pieces"] * 2
    assert all("limit" in message for message in told)


def test_every_group_runs_through_on_paper(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    todo = tuning.groups()
    assert len({group.name for group in todo}) == len(todo)
    plan = {
        "groups": [group.to_json() for group in todo],
        "skip": [[todo[0].name, next(iter(tried(8192, "forward", 2)))]],
        "rounds": 2,
        "until": time.time() + 60,
    }
    monkeypatch.setattr(_tune_group, "error_of", lambda *_: 0.5)
    monkeypatch.setattr(sys, "argv", ["_tune_group", json.dumps(plan)])
    with gpu_on_paper(monkeypatch):
        assert _tune_group.main() == 0
    log = tuning.Log()
    for line in filter(None, capsys.readouterr().out.split("\n")):
        log.hear(json.loads(line))
    assert log.machine["device"] == "NVIDIA H200" and not log.wrong
    assert log.done == {group.name for group in todo}
    for group in todo:
        names = [row["name"] for row in log.rows[group.name]]
        settings = list(
            tried(group.columns, group.way, getattr(torch, group.dtype).itemsize)
        )
        peers = list(tuning.PEERS if group.peers else tuning.PEERS[:1])
        assert names == peers + settings[group is todo[0] :]


def test_what_decides_most_is_timed_first() -> None:
    names = [group.name for group in tuning.groups()]
    assert names[:3] == [
        "forward bfloat16 16384x8192",
        "forward bfloat16 4096x65536",
        "forward bfloat16 1024x262144",
    ]
    kinds = [name.split()[1] for name in names]
    assert kinds == sorted(kinds), "bfloat16 first"


# --- a process that hangs, dies or has no time --------------------------------------

CHILD = """
import json, os, sys, time
plan = json.loads(sys.argv[1])
def tell(**message):
    print(json.dumps(message), flush=True)
skip = [tuple(one) for one in plan["skip"]]
tell(begin="process", limit=20)
tell(device="NVIDIA Test", versions={{"torch": "2"}}, limit=20)
for group in plan["groups"]:
    name = f"{{group['way']}} {{group['dtype']}} {{group['rows']}}x{{group['columns']}}"
    for setting in ("today: a", "b", "c"):
        if (name, setting) in skip:
            continue
        tell(group=name, begin=setting, limit=0.5)
        if (group["rows"], setting) == (2, "b"):
            {trouble}
    times = {{"copy": [1.0, 1.0], "today: a": [2.0, 2.0], "c": [1.6, 1.6]}}
    tell(group=name, times=times, bytes=8_000_000, limit=20)
    tell(group=name, done=0.1, limit=20)
"""
GROUPS = [Group(rows, 64, "bfloat16", "forward") for rows in (1, 2, 3)]


def child(folder: Path, trouble: str) -> tuning.Command:
    path = folder / "child.py"
    path.write_text(CHILD.format(trouble=trouble))

    def command(plan: Mapping[str, Any]) -> Sequence[str]:
        return [sys.executable, str(path), json.dumps(plan)]

    return command


@pytest.mark.parametrize(
    ("trouble", "why"),
    [("time.sleep(60)", "hangs"), ("os._exit(3)", "ended the process")],
)
def test_what_hangs_or_dies_is_named_and_left_out(
    trouble: str, why: str, tmp_path: Path
) -> None:
    log = tuning.Log()
    began = time.monotonic()
    command = child(tmp_path, trouble)
    tuning.measure(GROUPS, log, command, time.monotonic() + 30, rounds=2)
    assert time.monotonic() - began < 15
    assert log.wrong == [{"group": GROUPS[1].name, "name": "b", "why": why}]
    assert log.done == {group.name for group in GROUPS}
    best = tuning.best_of(log, GROUPS[1].name)
    assert best is not None
    assert (best["best"], best["to_today"]) == ("c", pytest.approx(1.25))


def test_time_is_up_for_whatever_hangs(tmp_path: Path) -> None:
    command = child(tmp_path, "tell(limit=50); time.sleep(50)")
    log, began = tuning.Log(), time.monotonic()
    tuning.measure(GROUPS, log, command, began + 3, rounds=2)
    assert time.monotonic() - began < 10
    assert log.done == {GROUPS[0].name}


def test_the_record_says_what_is_best_wrong_and_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "compile_all", lambda *_: 0)
    options = argparse.Namespace(seconds=9.0, rounds=2, out=tmp_path / "out")
    last = "sys.exit() if group['rows'] == 3 else time.sleep(60)"
    command = child(tmp_path, last)
    lost = Group(9, 64, "float32", "backward")
    assert tuning.tune(options, [*GROUPS[:2], lost], command) == 1
    record = json.loads((tmp_path / "out" / "tune_softmax.json").read_text())
    assert record["device"] == "NVIDIA Test"
    assert [one["best"] for one in record["best"]] == ["c", "c", "c"]
    assert record["wrong"][0]["name"] == "b"
    rows = record["groups"][GROUPS[0].name]
    assert {row["name"]: row["to_today"] for row in rows}["c"] == pytest.approx(1.25)
    assert record["left_out"] == []
    said = capsys.readouterr().out
    assert "1.250 x today" in said and f"WRONG {GROUPS[1].name}: b: hangs" in said


def test_groups_without_a_time_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "compile_all", lambda *_: 0)
    options = argparse.Namespace(seconds=9.0, rounds=2, out=tmp_path)
    command = [sys.executable, "-c", "print('no CUDA'); raise SystemExit(1)"]
    assert tuning.tune(options, GROUPS, lambda plan: command) == 1
    record = json.loads((tmp_path / "tune_softmax.json").read_text())
    assert record["left_out"] == [group.name for group in GROUPS]
    assert record["wrong"] == [
        {"group": "the process", "name": "start", "why": "ended the process"}
    ]
    assert "no CUDA" in capsys.readouterr().out


def test_compiling_is_shared_out_and_bounded(tmp_path: Path) -> None:
    shares: list[int] = []

    def command(plan: Mapping[str, Any]) -> Sequence[str]:
        shares.append(plan["share"])
        slow = "time.sleep(60)" if plan["share"] == 0 else "pass"
        return [sys.executable, "-c", f"import time; {slow}"]

    began = time.monotonic()
    ended = tuning.compile_all(GROUPS, command, began + 3)
    assert time.monotonic() - began < 10
    assert sorted(shares) == list(range(len(shares)))
    assert ended == len(shares) - 1


def test_a_share_compiles_every_nth(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[int, Any]] = []
    draw = _tune_group.draw
    monkeypatch.setattr(_tune_group, "draw", lambda group, _: draw(group, "cpu"))
    monkeypatch.setattr(
        _tune_settings, "run", lambda one, way, x, out: ran.append((x.shape[0], one))
    )
    settings = [Setting("launches", 8, 2**k) for k in range(5)]
    named = {one.name: one for one in settings}
    _tune_group.compile_share([(FORWARD, named)], 1, 2)
    assert ran == [(16, settings[1]), (16, settings[3])]


# --- the watch ----------------------------------------------------------------------


def test_what_is_no_message_is_kept_as_said() -> None:
    code = "print('hello'); print('{\"a\": 1}'); print('{not json')"
    heard: list[dict[str, Any]] = []
    ended = watch([sys.executable, "-c", code], heard.append, time.monotonic() + 20)
    assert ended == ("done", "hello\n{not json")
    assert heard == [{"a": 1}]


def test_a_silent_start_is_ended_with_its_children() -> None:
    code = (
        "import subprocess, sys; subprocess.Popen(['sleep', '60']); "
        "print('begun', flush=True); subprocess.call(['sleep', '60'])"
    )
    began = time.monotonic()
    command = [sys.executable, "-c", code]
    ended = watch(command, lambda _: None, began + 20, start_s=1)
    assert ended == ("silent", "begun")
    assert time.monotonic() - began < 10


def test_what_is_watched_ends_with_its_watcher(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    watched = (
        "import os, pathlib, time; "
        "from benchmarks._tune_watch import be_watched, tell; "
        f"be_watched(); pathlib.Path({str(mark)!r}).write_text(str(os.getpid())); "
        "tell(limit=60); time.sleep(60)"
    )
    watcher = (
        "import sys, time; from benchmarks._tune_watch import end_in_order, watch; "
        "end_in_order(); "
        f"watch([sys.executable, '-c', {watched!r}], print, time.monotonic() + 60)"
    )
    with subprocess.Popen([sys.executable, "-c", watcher], cwd=ROOT) as process:
        deadline = time.monotonic() + 30
        while not (mark.exists() and mark.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.terminate()
        assert process.wait(timeout=20) == 143
    with pytest.raises(ProcessLookupError):
        os.kill(int(mark.read_text()), 0)
