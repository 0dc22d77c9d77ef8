"""A profiler of nested regions: programs of them are drawn."""

from __future__ import annotations

import torch

from autograder.drawing import drawn, tensor
from autograder.exercise import (
    Arguments,
    Case,
    Exercise,
    Output,
    Outputs,
    Problem,
    Tolerance,
    Value,
)
from autograder.exercises.profiling.shared import prelude
from autograder.worker.adapters.practice import region_name

_DEEPEST = 3
_COLUMNS = {"calls": torch.int64, "total_ms": torch.float32, "own_ms": torch.float32}


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
        depths.append(drawn(generator, 0, high))
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
    paths = list(dict.fromkeys(paths_of(depths, names.tolist())))
    outputs = {}
    for place, (name, dtype) in enumerate(_COLUMNS.items()):
        what = name.replace("_", " ")
        labels = tuple(f"summary()[{path!r}][{place}] ({what})" for path in paths)
        outputs[name] = Output((len(paths),), dtype, labels=labels)
    return Problem(arguments, outputs)


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


PROFILER = Exercise(
    id="Profiler",
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
    # One subtraction of totals, each rounded once: eps of the whole is twice enough.
    tolerance=Tolerance(factor=1.0, scale=_scale),
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
