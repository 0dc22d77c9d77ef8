"""The self-test: before anyone's answer a known one goes through the same gates.

A gate that it does not pass cannot be judged on this machine: a compiler is missing, or
a library does not fit another. That gate is then *not checked* for everyone, and its
cause is said with the mend. Speed is left out: to time it takes seconds, and its judge
holds every answer against a peer that is timed in the same run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from autograder.exercise import (
    Case,
    Exercise,
    Launch,
    Output,
    Problem,
    Structure,
    Tolerance,
)
from autograder.results import Gate
from autograder.submission import Cells
from autograder.totals import moves
from autograder.workers import SMALLEST

# Without these nothing can be said of an answer.
ESSENTIAL = ("compiles", "right")
_N = 32


def language_of(exercise: Exercise) -> str:
    """Name what an exercise is written in, as the messages call it."""
    if exercise.language == "cuda":
        return "CUDA C++"
    return "Triton" if "import triton" in exercise.prelude else "Python"


def unfit_gates(
    language: str, judged: Callable[[Exercise, Cells, Mapping[str, Gate]], list[Gate]]
) -> dict[str, Gate]:
    """Return what stands in the place of each gate that cannot be judged here.

    Args:
        language: as ``language_of`` names it.
        judged: takes an answer through the gates, less those known to be unfit.
    """
    exercise, source = _KNOWN[language]
    known = Cells({exercise.id: source})
    unfit: dict[str, Gate] = {}
    tries = 0
    while not unfit.keys() & set(ESSENTIAL):
        passed = judged(exercise, known, unfit)
        bad = [g for g in passed if g.status != "passed" and g.name not in unfit]
        # Of plain Python there is no trace.
        bad = [g for g in bad if (language, g.name) != ("Python", "sound")]
        tries += 1
        if not bad:
            break
        # A busy machine may miss a deadline: once is not believed.
        if tries > 1:
            unfit |= {gate.name: _not_checked(gate, language) for gate in bad}
    return unfit


def _not_checked(gate: Gate, language: str) -> Gate:
    said = gate.message.strip().rstrip(".") or gate.status
    mend = "" if "Mend" in said else ". Mend: run `make setup`."
    message = (
        f"{language}: on this machine {gate.name!r} cannot be judged, since a known "
        f"right answer does not pass it: {said}{mend}"
    )
    return Gate(gate.name, "not checked", message, {"unfit": True})


def _twice(language: str, source: str, **declared: Any) -> tuple[Exercise, str]:
    """Declare an exercise that asks for ``2 * x``, with an answer that is right."""
    kernel = language == "cuda"

    def problem(case: Case, generator: torch.Generator) -> Problem:
        x = torch.randint(-99, 99, (_N,), dtype=torch.int32, generator=generator)
        out = {"out": Output((_N,), torch.int32)}
        if kernel:
            return Problem({"x": x, "out": None}, out, Launch((1,), (_N,)))
        return Problem({"x": x}, out)

    exercise = Exercise(
        id="selftest",
        stem="selftest",
        title="The self-test",
        kind="warm-up",
        points=1,
        language="cuda" if kernel else "python",
        entry="kernel" if kernel else "function",
        name="twice",
        source="autograder/selftest.py",
        goal="Double it.",
        requirements=(),
        problem=problem,
        reference=lambda arguments: {"out": 2 * torch.as_tensor(arguments["x"]).long()},
        cases=(Case(f"n = {_N}", {}),),
        hidden=lambda generator: (),
        tolerance=Tolerance(factor=1.0),
        hints=("", "", ""),
        onward="",
        **declared,
    )
    return exercise, source


# A loop to a bound that is a tensor, where numpy and Triton's interpreter disagreed; a
# sum and zeros, which Triton wrote in Triton.
_TRITON = """
@triton.jit
def _twice(x, out, n, SIZE: tl.constexpr):
    total = tl.zeros([SIZE], tl.int32)
    lanes = tl.arange(0, SIZE)
    for first in tl.range(0, n, SIZE):
        values = tl.load(x + first + lanes)
        total += tl.sum(values[None, :] * 2, 0)
    tl.store(out + lanes, total)


def twice(x):
    out = torch.empty_like(x)
    _twice[(1,)](x, out, len(x), SIZE=32)
    return out
"""
_KNOWN = {
    "CUDA C++": _twice(
        "cuda",
        f"%%cuda{SMALLEST}",
        counts=moves(),
        structure=(Structure(holds=("LDG",)),),
    ),
    "Triton": _twice(
        "python",
        _TRITON,
        prelude="import torch\nimport triton\nimport triton.language as tl\n",
        counts=moves(),
        structure=(Structure(holds=("triton.jit", "tl.load", "tl.sum")),),
    ),
    "Python": _twice(
        "python",
        "def twice(x):\n    return 2 * x\n",
        structure=(Structure(lacks=("torch.add",), runs_no=("logsumexp",)),),
    ),
}
LANGUAGES = tuple(_KNOWN)
