"""Each solved function, called as its reader calls it: from the chapter's notebook."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

pytest.importorskip("IPython")

from autograder.authoring.chapters import chapter_files, read_chapter
from autograder.exercises import all_exercises
from autograder.regions import cell_source
from autograder.supervisor.sandbox import PACKAGES

# Those that the grader launches, it launches in every test of it.
EXERCISES = all_exercises()
FUNCTIONS = {e.id: e for e in EXERCISES.values() if e.language == "python"}
CHAPTERS = {
    path.stem: read_chapter(path) for path in chapter_files(PACKAGES / "chapters")
}
WITH_FUNCTIONS = [
    name for name, each in CHAPTERS.items() if FUNCTIONS.keys() & set(each.exercises)
]

# Nothing of ours is imported before the setup cell has run.
READER = """\
import json, sys
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()
setup, sources, solved = json.load(sys.stdin)
shell.run_cell(setup).raise_error()
for source in sources:
    shell.run_cell(source).raise_error()

from functools import partial
from autograder.exercises import all_exercises
from autograder.judge.values import draw, judge
from autograder.worker.tensors import to_bytes

def on_ranks(answer, problem):
    # As the grader calls it: tensors are stacked by rank.
    import kernelwright as kw
    import torch
    import torch.distributed as dist

    def on_rank():
        r = dist.get_rank()
        given = [
            value[r]
            if isinstance(value, torch.Tensor) and name not in problem.replicated
            else value
            for name, value in problem.arguments.items()
        ]
        made = answer(*given)
        return list(made) if isinstance(made, (tuple, list)) else [made]

    return [torch.stack(each) for each in zip(*kw.ranks(problem.ranks, on_rank))]

def described(answer, problem):
    # What makes a circuit of it looks up every name that its cell needs.
    from amaranth.back import rtlil
    import torch

    numbers = {
        name: value
        for name, value in problem.arguments.items()
        if not isinstance(value, torch.Tensor)
    }
    assert rtlil.convert(answer(**numbers))

for name in solved:
    exercise = all_exercises()[name]
    case = exercise.cases[0]
    problem = draw(exercise, case, 7, "public 0")
    if exercise.entry == "circuit":
        described(shell.user_ns[exercise.name], problem)
        continue
    prelude = {}
    exec(exercise.prelude, prelude)
    answer = shell.user_ns[exercise.name]
    if "__adapt__" in prelude:
        answer = partial(prelude["__adapt__"], answer)
    if exercise.entry == "ranks":
        made = on_ranks(answer, problem)
    else:
        made = answer(*problem.arguments.values())
    made = made if isinstance(made, (tuple, list)) else [made]
    outputs = dict(zip(problem.outputs, map(to_bytes, made), strict=True))
    verdict = judge(exercise, case, problem, outputs, {})
    assert verdict.right, f"{name}: {verdict}"
"""


@pytest.mark.parametrize("chapter", WITH_FUNCTIONS)
def test_a_solved_function_can_be_called_in_its_notebook(chapter: str) -> None:
    cells = CHAPTERS[chapter]
    setup = next(cell.source for cell in cells.cells if cell.kind == "code")
    ids = [name for name in cells.exercises if name in FUNCTIONS]
    # With the kernels in CUDA C++ that some of them launch.
    needed = {*ids, *(each for name in ids for each in FUNCTIONS[name].needs)}
    sources = [
        cell_source(EXERCISES[name], solved=True)
        for name in cells.exercises
        if name in needed
    ]
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment |= {"KERNELWRIGHT_BACKEND": "emulator"}
    done = subprocess.run(
        [sys.executable, "-c", READER],
        input=json.dumps([setup, sources, ids]),
        capture_output=True,
        text=True,
        cwd=PACKAGES,
        env=environment | {"PYTHONPATH": str(PACKAGES)},
        timeout=240,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_setup_cell_imports_kernelwright_before_triton(chapter: str) -> None:
    cells = CHAPTERS[chapter].cells
    setup = next(cell.source for cell in cells if cell.kind == "code")
    imported = re.findall(r"^(?:import|from) (\w+)", setup, re.MULTILINE)
    assert "kernelwright" in imported
    if "triton" in imported:
        assert imported.index("kernelwright") < imported.index("triton")
