"""What a benchmark stores, run on a GPU that stands on paper only (``paper``)."""

from __future__ import annotations

import itertools
import json
import re
import statistics
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from autograder.authoring.results import parse_columns
from tests.benchmarks.paper import gpu_on_paper, record_of, time_of

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
# What is no kernel: circuits are placed and routed, and run on no GPU.
CIRCUITS = ("streaming_fpga",)
STEMS = [
    path.stem[3:]
    for path in sorted((ROOT / "chapters").glob("[0-9]*.md"))
    if path.stem[3:] not in CIRCUITS
]
# Facts of a row that are known before it is measured.
KNOWN = ("dtype", "bytes", "flops", "shape", "n", "launches", "tiles", "scores_bytes")
# Rounds before, whose times are thrown away.
WARM_UPS = {"flash_attention": 1}
# What a run stores instead where memory does not suffice.
OUTCOMES = {"failed", "out_of_memory"}


# What was measured on two GPUs, which were others.
DEVICES = dict.fromkeys(("parallel", "ring_allreduce"), "nvidia-h100-80gb-hbm3")


def stored_run(name: str) -> Path:
    """Return where a run is stored, if it ever was."""
    return RESULTS / f"{name}-{DEVICES.get(name, 'nvidia-h200')}.json"


def stored(name: str) -> dict[str, Any]:
    """Return a stored run; skip what was never measured."""
    path = stored_run(name)
    if not path.exists():
        pytest.skip(f"no run of {name} is stored")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def plain(label: str) -> str:
    """Return the label of an older run as labels are written now."""
    return re.sub(r"^solutions, (\w+)", r"`\1`", label)


@cache
def record(stem: str) -> dict[str, Any]:
    """Run a benchmark on paper, once for all tests; return what it stored."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        return record_of(stem, Path(folder), patch)


@pytest.mark.parametrize("stem", STEMS)
def test_a_run_today_stores_the_rows_that_are_stored(stem: str) -> None:
    wanted, got = stored(stem), record(stem)
    assert list(got) == list(wanted)
    assert [row["name"] for row in got["rows"]] == [r["name"] for r in wanted["rows"]]
    for ours, theirs in zip(got["rows"], wanted["rows"], strict=True):
        assert ours["label"] == plain(theirs["label"])
        for key in KNOWN:
            if key in theirs:
                assert ours[key] == theirs[key], (ours["name"], key)
        if not OUTCOMES & theirs.keys():
            assert ours.keys() == theirs.keys(), ours["name"]


def shown(stem: str) -> Iterator[tuple[str, str]]:
    """Give each row and key of a stem's run that a chapter or a page shows."""
    run = stored_run(stem).stem
    for path in (*(ROOT / "chapters").glob("*.md"), *(ROOT / "book").glob("*.md")):
        text = path.read_text()
        for found in re.finditer(
            rf":::{{results}} {run}\n:rows: (.*)\n:columns: (.*)\n", text
        ):
            columns = [column.key for column in parse_columns(found[2])]
            for row in found[1].split(","):
                yield from ((row.strip(), key) for key in columns)
        yield from re.findall(rf"{{result}}`{run}/(\w+)/(\w+)", text)


@pytest.mark.parametrize("stem", STEMS)
def test_a_run_today_stores_all_that_a_chapter_shows(stem: str) -> None:
    asked = set(shown(stem))
    assert asked, f"chapter {stem} shows no {{results}} {stored_run(stem).stem}"
    run = record(stem)
    rows = {row["name"]: row for row in run["rows"]} | {"meta": run}
    assert {row for row, _ in asked} <= rows.keys()
    absent = {
        (row, key)
        for row, key in asked
        if key not in rows[row] and not OUTCOMES & rows[row].keys()
    }
    assert not absent


@pytest.mark.parametrize("stem", STEMS)
def test_what_has_a_floor_is_measured(
    stem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[str] = []

    def judge(rows: Any, floors: Any, key: str) -> int:
        measured = {row["name"] for row in rows if isinstance(row.get(key), float)}
        for device in floors.values():
            judged.extend(device)
            assert device.keys() <= measured
        return 0

    monkeypatch.setattr("benchmarks._command.judge", judge)
    record_of(stem, tmp_path, monkeypatch, "--check")
    # A chapter that was not measured yet has none.
    assert judged or not stored_run(stem).exists(), f"benchmarks/{stem}.py: no floors"


def sizes_of(stem: str, timed: list[dict[str, Any]]) -> list[int]:
    """Return how many are timed together, group after group."""
    if stem in ("flash_attention", "moe"):
        with pytest.MonkeyPatch.context() as patch, gpu_on_paper(patch):
            groups = import_module(f"benchmarks.{stem}").groups()
            return [len(list(group)) for group in groups]
    # Each group has one peer.
    peers_of_groups = ("epilogue", "flash_attention_triton", "int4")
    if stem in (*peers_of_groups, "parallel", "ring_allreduce", "transformer"):
        counts = Counter(row["peer"] for row in timed)
        return list(counts.values())
    return [len(timed)]


def rounds_of(
    stem: str, rows: list[dict[str, Any]]
) -> Iterator[dict[str, list[float]]]:
    """Give the times of what was timed together, from how the clock goes."""
    bench = import_module(f"benchmarks.{stem}")
    timed = [row for row in rows if "low_ms" in row]
    bounds = itertools.accumulate(sizes_of(stem, timed), initial=0)
    call = 0
    for first, last in itertools.pairwise(bounds):
        names = [row["name"] for row in timed[first:last]]
        times: dict[str, list[float]] = {name: [] for name in names}
        call += WARM_UPS.get(stem, 0) * len(names)
        for _ in range(bench.ROUNDS):
            for name in names:
                call += 1
                times[name].append(time_of(call))
        yield times


# Chapter 3 is about timers: it has no rounds.
@pytest.mark.parametrize("stem", [stem for stem in STEMS if stem != "profiling"])
def test_times_and_ratios_are_of_the_same_round(stem: str) -> None:
    rows = {row["name"]: row for row in record(stem)["rows"]}
    for times in rounds_of(stem, list(rows.values())):
        copies = [name for name in times if re.fullmatch(r"copy(_\d+)?", name)]
        for name, own in times.items():
            row = rows[name]
            assert row["median_ms"] == statistics.median(own)
            assert (row["low_ms"], row["high_ms"]) == (min(own), max(own))
            if copies:
                size = row["bytes"]
                peer = min(copies, key=lambda one: abs(rows[one]["bytes"] - size))
                due = size / rows[peer]["bytes"]
            else:
                peer, due = row["peer"], 1.0
            ratios = [due * b / a for a, b in zip(own, times[peer], strict=True)]
            assert row["ratio"] == pytest.approx(statistics.median(ratios), rel=1e-12)
