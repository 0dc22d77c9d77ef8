"""Small exercises of the tests' own, and notebooks to write answers into."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from autograder.exercise import (
    Arguments,
    Case,
    Exercise,
    Launch,
    Output,
    Outputs,
    Problem,
    Speed,
    Tolerance,
)
from autograder.judge.judge import Judge
from autograder.judge.prints import Places, Print, Prints, path_of
from autograder.judge.trial import Deadlines
from autograder.judge.values import cases_of, draw, given, judge
from autograder.worker.tensors import to_bytes

SHORT = Deadlines(prepare=20.0, case=3.0, kernel=1.5, all=20.0)


def _problem(case: Case, generator: torch.Generator, kernel: bool) -> Problem:
    n = case.sizes["n"]
    x = torch.randn(n, generator=generator)
    out = {"out": Output((n,), torch.float32)}
    if kernel:
        launch = Launch((-(-n // 32),), (32,))
        return Problem({"x": x, "out": None, "n": n}, out, launch)
    return Problem({"x": x}, out)


def _twice(arguments: Any) -> Any:
    return {"out": arguments["x"].double() * 2}


def _case(n: int) -> Case:
    return Case(f"n = {n}", {"n": n})


def make_exercise(name: str = "twice", language: str = "python", **changes: Any) -> Any:
    """Return an exercise that asks for ``2 * x``."""
    kernel = language == "cuda"
    fields: dict[str, Any] = {
        "id": name,
        "stem": "small",
        "title": f"The exercise {name}",
        "kind": "core",
        "points": 10,
        "language": language,
        "entry": "kernel" if kernel else "function",
        "name": name,
        "source": f"no/such/folder/{name}.cu",
        "goal": "Double it.",
        "requirements": (),
        "problem": lambda case, generator: _problem(case, generator, kernel),
        "reference": _twice,
        "cases": (_case(33), _case(1)),
        "hidden": lambda g: [_case(int(torch.randint(40, 90, (), generator=g)))],
        "tolerance": Tolerance(factor=1.0),
        "hints": ("first", "second", "third"),
        "onward": "Try three times.",
    }
    return Exercise(**{**fields, **changes})


PRINTS: dict[Path, Prints] = {}
"""Where prints would be kept, and what they are: these exercises have no files."""


def give_prints(
    exercise: Exercise, **mistakes: tuple[str, Callable[[Arguments], Outputs]]
) -> None:
    """Have an exercise's mistakes known.

    Args:
        exercise: not one of the course's.
        mistakes: by name, the sentence of each and a function that does its work.
    """
    places: list[Places] = []
    kept: dict[str, dict[int, Any]] = {name: {} for name in mistakes}
    for number, (case, purpose) in enumerate(cases_of(exercise, 0, public=True)):
        problem = draw(exercise, case, 0, purpose)
        right = exercise.reference(given(problem))
        answer = {name: values.double().reshape(-1) for name, values in right.items()}
        every = {name: torch.arange(len(values)) for name, values in answer.items()}
        places.append(Places(case.name, every, answer, {}))
        for mistake, (_, function) in mistakes.items():
            made = function(given(problem))
            data = {name: to_bytes(values) for name, values in made.items()}
            verdict = judge(exercise, case, problem, data, {})
            if not verdict.right:
                kept[mistake][number] = {
                    "wrong": {n: int(bad.sum()) for n, bad in verdict.bad.items()},
                    **{n: out.reshape(-1).tolist() for n, out in made.items()},
                }
    prints = (Print(name, says, kept[name]) for name, (says, _) in mistakes.items())
    PRINTS[path_of(exercise)] = Prints("", tuple(places), tuple(prints))


SPEED = Speed(
    peer="copy bandwidth",
    case=_case(1 << 20),
    bytes_moved=lambda case: 8 * case.sizes["n"],
    bands={"bronze": 0.5, "silver": 0.7, "gold": 0.9},
)
TWICE = make_exercise("twice")
AFTER = make_exercise("after")
KERNEL = make_exercise("doubled", "cuda")
for _one in (TWICE, KERNEL):
    give_prints(
        _one,
        unchanged=("This is x, not 2 * x.", lambda a: {"out": a["x"]}),
        squared=("This is x squared.", lambda a: {"out": a["x"] ** 2}),
    )

RIGHT = "# exercise: {name}\ndef {name}(x):\n    return 2 * x\n"
RIGHT_KERNEL = """%%cuda
// exercise: doubled
__global__ void doubled(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        out[i] = 2 * x[i];
    }
}
"""


def python_cell(body: str, name: str = "twice") -> str:
    """Return an exercise cell whose function has the given body."""
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return f"# exercise: {name}\ndef {name}(x):\n{lines}\n"


def code_cell(source: str, **extra: Any) -> dict[str, Any]:
    """Return a notebook's code cell."""
    return {
        "cell_type": "code",
        "source": source.splitlines(keepends=True),
        "metadata": {},
        "outputs": [],
        "execution_count": None,
        **extra,
    }


def write_notebook(path: Path, cells: Sequence[str | dict[str, Any]]) -> Path:
    """Write a notebook that holds the cells."""
    made = [code_cell(cell) if isinstance(cell, str) else cell for cell in cells]
    document = {"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(document))
    return path


def left_behind(judge: Judge) -> list[str]:
    """List the processes of a judge's workers: none may outlive its worker."""
    parents: dict[int, int] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(name)] = int(fields[1])
    found = []
    for pid in parents:
        try:
            folder = Path(os.readlink(f"/proc/{pid}/cwd")).name
        except OSError:
            continue
        above = pid
        while above and above != judge.server.pid:
            above = parents.get(above, 0)
        if above and folder.startswith("kw-"):
            found.append(f"{pid} in {folder}")
    return found
