"""The Profiler exercise of chapter 3: programs of nested regions, drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
    Exercise,
    NearMiss,
    Output,
    Outputs,
    Problem,
    Tolerance,
    Value,
)
from autograder.exercises._profiling import STEM, made_by, prelude
from autograder.worker.practice import adapt_profiler, region_name

_DEEPEST = 3
_COLUMNS = ("calls", "total_ms", "own_ms")


def region_case(runs: int, regime: str, words: str) -> Case:
    """Return a case of so many region runs."""
    return Case(f"{runs} region runs, {words}", {"runs": runs}, regime)


def _depths(case: Case, generator: torch.Generator) -> list[int]:
    depths: list[int] = []
    for _ in range(case.sizes["runs"]):
        most = 0 if not depths or case.regime == "flat" else depths[-1] + 1
        if case.regime == "chain":
            depths.append(min(len(depths), _DEEPEST))
            continue
        high = min(most, _DEEPEST) + 1
        depths.append(int(torch.randint(0, high, (), generator=generator)))
    return depths


def _problem(case: Case, generator: torch.Generator) -> Problem:
    runs = case.sizes["runs"]
    depths = _depths(case, generator)
    few = 1 if case.regime == "recursive" else 3
    names = torch.randint(0, few, (runs,), generator=generator)
    work = 0.05 + 0.4 * torch.rand(runs, 2, generator=generator).double()
    fails = runs // 2 if case.regime == "raises" else -1
    arguments: dict[str, Value | None] = {
        "depths": torch.tensor(depths, dtype=torch.int64),
        "names": names,
        "work": work,
        "fails": fails,
    }
    count = len(set(paths_of(depths, names.tolist())))
    return Problem(
        arguments,
        {
            "calls": Output((count,), torch.int64),
            "total_ms": Output((count,), torch.float32),
            "own_ms": Output((count,), torch.float32),
        },
    )


def paths_of(depths: list[int], names: list[int]) -> list[str]:
    """Return each run's path: its name behind those of the runs around it."""
    stack: list[str] = []
    paths = []
    for depth, name in zip(depths, names, strict=True):
        stack[depth:] = [region_name(name)]
        paths.append("/".join(stack))
    return paths


def _reference(arguments: Arguments) -> Outputs:
    depths = tensor(arguments, "depths").tolist()
    paths = paths_of(depths, tensor(arguments, "names").tolist())
    own = tensor(arguments, "work").double().sum(dim=1).tolist()
    order = list(dict.fromkeys(paths))
    found = {path: [0.0, 0.0, 0.0] for path in order}
    around: list[str] = []
    for depth, path, ms in zip(depths, paths, own, strict=True):
        around[depth:] = [path]
        found[path][0] += 1
        found[path][2] += ms
        for outer in around:  # its work is part of every region that it is inside
            found[outer][1] += ms
    columns = zip(*found.values(), strict=True)
    return {
        name: torch.tensor(column, dtype=torch.float64)
        for name, column in zip(_COLUMNS, columns, strict=True)
    }


def _scale(arguments: Arguments) -> Outputs:
    """Rounding is relative to the whole: own time is a difference of totals."""
    whole = tensor(arguments, "work").double().sum()
    like = _reference(arguments)
    return {name: whole.expand(like[name].shape) for name in _COLUMNS}


class _Mistaken:
    """A profiler with one thing wrong."""

    def __init__(self, gpu: Any, *, mistake: str) -> None:
        self.gpu, self.mistake = gpu, mistake
        self.open: list[str] = []
        self.done: list[tuple[str, Any, Any]] = []

    def _mark(self) -> Any:
        if self.mistake == "clock":
            return self.gpu.perf_counter()
        if self.mistake == "waits":
            self.gpu.synchronize()
        event = self.gpu.Event(enable_timing=True)
        event.record()
        return event

    @contextmanager
    def record(self, name: str) -> Iterator[None]:
        self.open.append(name)
        path = "/".join(self.open)
        start = self._mark()
        try:
            yield
        finally:
            self.done.append((path, start, self._mark()))
            self.open.pop()

    def summary(self) -> dict[str, tuple[int, float, float]]:
        self.gpu.synchronize()
        calls: dict[str, int] = {}
        total: dict[str, float] = {}
        inner: dict[str, float] = {}
        for path, start, stop in self.done:
            clock = self.mistake == "clock"
            ms = (stop - start) * 1e3 if clock else start.elapsed_time(stop)
            last = self.mistake == "last run"
            calls[path] = calls.get(path, 0) + 1
            total[path] = ms if last else total.get(path, 0.0) + ms
            parts = path.split("/")
            outer = ["/".join(parts[:n]) for n in range(1, len(parts))]
            if self.mistake != "all descendants":
                outer = outer[-1:]
            for parent in outer:
                inner[parent] = inner.get(parent, 0.0) + ms
        if self.mistake == "own is total":
            inner = {}
        return {p: (calls[p], total[p], total[p] - inner.get(p, 0.0)) for p in calls}


def _mistaken(mistake: str) -> Callable[[Arguments], Outputs]:
    def answer(gpu: Any) -> _Mistaken:
        return _Mistaken(gpu, mistake=mistake)

    return made_by(adapt_profiler, _COLUMNS, answer)


def hidden_regions(generator: torch.Generator) -> Iterator[Case]:
    """Draw programs of every kind."""
    for regime in ("nested", "nested", "chain", "recursive", "raises"):
        runs = int(torch.randint(6, 16, (), generator=generator))
        yield region_case(runs, regime, regime)


PROFILER = Exercise(
    id="Profiler",
    stem=STEM,
    title="A profiler of nested regions",
    kind="core",
    points=20,
    language="python",
    entry="function",
    name="Profiler",
    source="solutions/profiling/regions.py",
    goal="Write `record`, which marks a region in the queue, and `summary`, which "
    "adds up.",
    requirements=(
        "`record` never waits for the GPU: events only, read in `summary`.",
        "A region's path is its name behind those of the regions around it, "
        "`step/forward`.",
        "`summary()` returns `{path: (calls, total ms, own ms)}`; own is the total "
        "less the totals of the regions directly inside.",
        "A region that raises is recorded all the same, and its exception passes on.",
    ),
    problem=_problem,
    reference=_reference,
    cases=(
        region_case(7, "nested", "some inside others"),
        region_case(1, "flat", "alone"),
        region_case(8, "flat", "names repeated"),
        region_case(6, "chain", "one inside the other"),
        region_case(9, "recursive", "all of one name"),
        region_case(10, "raises", "one of them raises"),
    ),
    hidden=hidden_regions,
    # One subtraction of totals, each rounded once: eps of the whole is twice enough.
    tolerance=Tolerance(factor=1.0, scale=_scale),
    near_misses=(
        NearMiss(
            "own is total",
            _mistaken("own is total"),
            "Own time is the total everywhere: subtract what the regions directly "
            "inside took.",
        ),
        NearMiss(
            "all descendants",
            _mistaken("all descendants"),
            "Own time loses too much: a region inside a region inside is subtracted "
            "twice. Subtract direct children only.",
        ),
        NearMiss(
            "last run",
            _mistaken("last run"),
            "A region that runs again overwrites its total: add to what is there.",
        ),
        NearMiss(
            "clock",
            _mistaken("clock"),
            "These are the times in which the CPU queued the work, not those in which "
            "the GPU did it: record events, not the clock.",
        ),
        NearMiss(
            "waits",
            _mistaken("waits"),
            "record waits for the GPU, which then stands idle until the next launch "
            "arrives: the measurement slows what it measures. Wait in summary only.",
        ),
    ),
    hints=(
        "`record` queues one event before the body and one behind it, and remembers"
        " both with the path. Nothing is read until `summary`.",
        "`self.open` is a stack: append the name on entry, pop it on exit; the path"
        ' is `"/".join(self.open)`. A `try` and a `finally` around the `yield` keep'
        " both right when the body raises.",
        "In `summary`, after `self.gpu.synchronize()`: go through `self.done` once "
        "and add each run's `elapsed_time` to its path's total and to its parent's "
        'inner time (`path.rpartition("/")[0]`); own is total less inner.',
    ),
    onward="Profile a training step with kw.Profiler: which region has the most own "
    "time?",
    prelude=prelude("adapt_profiler"),
)
