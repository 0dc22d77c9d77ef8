"""One answer's trial: a worker that holds the cells, tried case after case."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

import torch

from autograder.exercise import Case, Exercise, Problem, Value, withheld
from autograder.judge.prints import judge_by_print
from autograder.judge.values import Verdict, draw, judge, poison
from autograder.judge.words import return_trouble, trouble_message, whole
from autograder.supervisor.workers import InfrastructureError, Worker
from autograder.worker.launches import MOST_KERNELS
from autograder.worker.tensors import dtype_name, span, to_bytes
from autograder.worker.wire import Header

if TYPE_CHECKING:
    from autograder.judge.run import Run

# What is compared with the reference is held in memory: a declaration over this is
# a mistake of the course's.
_LARGEST_OUTPUT = 1 << 30
_NO_ANSWER = (
    "what came back is no answer of the grader's; only the exercise's own code may run "
    "in the cell."
)


@dataclass(frozen=True)
class Deadlines:
    """What each step of a trial may take, in seconds.

    Args:
        prepare: compile, or run the cell.
        case: one case, launch to outputs: what the answer's own thread computes, or
            how long it may sleep, which a worker can tell and say on which line.
        kernel: one launch under the emulator, which can say where it hangs; less
            than ``case``, so that it can.
        all: every case together.
    """

    prepare: float = 40.0
    case: float = 10.0
    kernel: float = 6.0
    all: float = 90.0

    @property
    def case_wall(self) -> float:
        """For one case by the clock: a machine may be busy with others, too."""
        return 2 * self.case

    @property
    def limits(self) -> Header:
        """What a worker is told of the time that it has for a case."""
        return {"busy_s": self.case, "wall_s": self.case_wall}

    @property
    def case_end(self) -> float:
        """When the supervisor ends a case: where a worker should have, and did not."""
        return self.case_wall + 2.0


@dataclass(frozen=True)
class Cell:
    """A cell that a trial runs: its exercise, its language, its text."""

    id: str
    language: str
    source: str


@dataclass(frozen=True)
class Tried:
    """What came of one case.

    Args:
        trouble: what kept it from giving outputs, for the learner; '' if nothing.
        kind: the trouble's kind.
        verdict: on its outputs, where there are any.
        problem: the case's values, to ask further questions with.
        poisons: what each output held before.
        detail: facts about the trouble.
        kernels: which Triton kernels were launched, and for what kinds of arguments.
        counted: what the run itself counted: the cycles of a circuit.
        undefined: whether a masked load of Triton's did not say what it then holds.
    """

    trouble: str = ""
    kind: str = ""
    verdict: Verdict | None = None
    problem: Problem | None = None
    poisons: dict[str, bytes] = field(default_factory=dict)
    detail: dict[str, Any] = field(default_factory=dict)
    kernels: tuple[Any, ...] = ()
    counted: dict[str, float] = field(default_factory=dict)
    undefined: bool = False

    @property
    def right(self) -> bool:
        """Whether it ran and all of it was right."""
        return not self.trouble and self.verdict is not None and self.verdict.right


def prepare(run: Run, worker: Worker, backend: str | None = None) -> Header | None:
    """Load the cells into a fresh worker; return the trouble that it met, if any.

    Args:
        run: what is graded.
        worker: a fresh one.
        backend: ``emulator`` to use that also where there is a GPU.
    """
    answer, _ = worker.ask(
        {
            "op": "prepare",
            "prelude": run.exercise.prelude,
            "cells": [vars(cell) for cell in run.cells],
            "name": run.exercise.name,
            "entry": run.exercise.entry,
            "environ": {"KERNELWRIGHT_BACKEND": backend} if backend else {},
            **run.kind.limits(run.deadlines),
        },
        deadline_s=run.deadlines.prepare,
    )
    return None if answer.get("ok") is True else answer


def try_case(run: Run, worker: Worker, case: Case, purpose: str) -> Tried:
    """Run the answer on one case and judge what it made."""
    exercise, kind, deadlines = run.exercise, run.kind, run.deadlines
    problem = draw(exercise, case, run.seed, purpose)
    poisons = poisons_for(run, problem)
    header, blobs = pack_problem(run, problem, poisons, run.device)
    header |= {
        "op": "run",
        "deadline_s": deadlines.kernel,
        **kind.case(problem, deadlines),
    }
    header["operations"] = any(wanted.runs_no for wanted in exercise.structure)
    sizes = [_bytes_of(o.shape, o.dtype) for o in problem.outputs.values()]
    wall_s = deadlines.case_end
    answer, data = worker.ask(header, blobs, deadline_s=wall_s, sizes=sizes)
    if answer.get("ok") is not True:
        return Tried(
            trouble=trouble_message(answer, exercise) or _NO_ANSWER,
            kind=str(answer.get("kind")),
            problem=problem,
            detail={"line": whole(answer.get("line"))},
        )
    trouble = _side_effects(exercise, problem, answer)
    if trouble:
        return Tried(trouble=trouble, kind="side effect", problem=problem)
    if not kind.fills:
        returned = answer.get("returned")
        trouble = return_trouble(
            exercise,
            returned if isinstance(returned, list) else [],
            dict(problem.outputs),
            run.device,
        )
        if trouble:
            return Tried(trouble=trouble, kind="return", problem=problem)
    if [len(piece) for piece in data] != sizes:
        return Tried(trouble="it gave no outputs", kind="return", problem=problem)
    made = dict(zip(problem.outputs, data, strict=True))
    if exercise.reference is withheld:
        number = int(purpose.removeprefix("public "))
        verdict = judge_by_print(exercise, number, problem, made)
    else:
        verdict = judge(exercise, case, problem, made, poisons)
    if trouble := kind.objection(exercise, answer, data, verdict.right):
        return Tried(trouble=trouble, kind="return", problem=problem)
    listed = answer.get("kernels")
    kernels = tuple(listed[: MOST_KERNELS + 1]) if isinstance(listed, list) else ()
    return Tried(
        verdict=verdict,
        problem=problem,
        poisons=poisons,
        kernels=kernels,
        counted=_counted(answer.get("counted")),
        undefined=answer.get("undefined") is True,
    )


def _counted(told: object) -> dict[str, float]:
    """Take what a worker counted for whole numbers, or for nothing."""
    if not isinstance(told, dict):
        return {}
    return {str(name): float(whole(value)) for name, value in told.items()}


def poisons_for(run: Run, problem: Problem) -> dict[str, bytes]:
    """Return what each output buffer holds before the answer writes to it."""
    if not run.kind.fills:
        return {}
    return {
        name: poison(name, out.dtype, _count(out.shape), run.seed)
        for name, out in problem.outputs.items()
        if problem.arguments[name] is None
    }


def pack_problem(
    run: Run, problem: Problem, poisons: dict[str, bytes], device: str
) -> tuple[Header, list[bytes]]:
    """Turn a case's values into a header and raw bytes."""
    arguments: list[Header] = []
    blobs: list[bytes] = []
    for name, value in problem.arguments.items():
        if value is None:
            out = problem.outputs[name]
            spec = _spec(name, out.dtype, out.shape, _row_major(out.shape))
            data = poisons[name]
        elif isinstance(value, torch.Tensor):
            stretch, _ = span(value)
            spec = _spec(name, value.dtype, tuple(value.shape), value.stride())
            data = to_bytes(stretch)
        else:
            arguments.append(_scalar(name, value))
            continue
        spec["replicated"] = name in problem.replicated
        arguments.append({**spec, "blob": len(blobs)})
        blobs.append(data)
    header: Header = {
        "name": run.exercise.name,
        "entry": run.exercise.entry,
        "fills": run.kind.fills,
        "device": device,
        "arguments": arguments,
        "outputs": [
            {"name": n, "dtype": dtype_name(o.dtype), "shape": list(o.shape)}
            for n, o in problem.outputs.items()
        ],
    }
    if problem.launch is not None:
        header["launch"] = {
            "grid": list(problem.launch.grid),
            "block": list(problem.launch.block),
            "shared": problem.launch.shared,
            "ranks": problem.ranks,
        }
    return header, blobs


def _side_effects(exercise: Exercise, problem: Problem, answer: Header) -> str:
    """Say what the answer wrote that it should not have; '' if nothing."""
    names = set(problem.arguments)
    trespass = answer.get("trespass")
    for name, sides in trespass.items() if isinstance(trespass, dict) else ():
        if name in names:
            outside = answer.get("outside")
            index = outside.get(name) if isinstance(outside, dict) else None
            return _outside(problem, name, sides == ["before"], index)
    changed = answer.get("changed")
    for name in changed if isinstance(changed, list) else ():
        if isinstance(name, str) and name in names:
            return f"it changes its input {name}; only the output is its to write."
    return ""


def _outside(problem: Problem, name: str, before: bool, index: object) -> str:
    """Say where something was written that is no element, and what to look at."""
    side = "before its first" if before else "past its last"
    at = f" ({name}[{index}])" if type(index) is int and abs(index) < 1 << 31 else ""
    told = f"it writes outside of {name}, {side} element{at}."
    # Only threads that have no element need a guard, and it needs the length.
    takes_length = any(type(value) is int for value in problem.arguments.values())
    launch = problem.launch
    threads = prod(launch.grid) * prod(launch.block) if launch else 0
    if takes_length and type(index) is int and 0 <= index < threads:
        return (
            f"{told} Threads without an element of their own must write nothing: let "
            "a guard keep all of them out, from the first index past the end on."
        )
    return f"{told} From what is that index computed, and what is its largest value?"


def _spec(
    name: str, dtype: torch.dtype, shape: tuple[int, ...], strides: tuple[int, ...]
) -> Header:
    return {
        "name": name,
        "kind": "tensor",
        "dtype": dtype_name(dtype),
        "shape": list(shape),
        "strides": list(strides),
    }


def _scalar(name: str, value: Value) -> Header:
    if isinstance(value, float):
        # JSON has no NaN and no Inf; the hexadecimal form is exact, and has both.
        return {"name": name, "kind": "float", "value": value.hex()}
    return {"name": name, "kind": "int", "value": int(value)}


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.insert(0, step)
        step *= max(size, 1)
    return tuple(strides)


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def _bytes_of(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    size = _count(shape) * dtype.itemsize
    if size > _LARGEST_OUTPUT:
        raise InfrastructureError(f"an output of {size:,} bytes is too large to judge")
    return size
