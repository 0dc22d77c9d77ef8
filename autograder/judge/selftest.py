"""The self-test: where an answer fails, a known one goes through the same gates.

Before a class is graded it goes first. A gate that it does not pass cannot be judged on
this machine: a compiler is missing, or a library does not fit another. That gate is
then *not checked* for everyone, and its cause is said with the mend. Speed is left out:
to time it takes seconds, and its judge holds every answer against a peer that is timed
in the same run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from autograder.exercise import (
    Case,
    Count,
    Exercise,
    Launch,
    Output,
    Problem,
    Structure,
    Tolerance,
)
from autograder.ideals import moves
from autograder.judge.kinds import kind_of
from autograder.judge.results import Gate
from autograder.submission.submitted import Cells
from autograder.supervisor.workers import SMALLEST

# Without these nothing can be said of an answer.
ESSENTIAL = ("compiles", "right")
_N = 32


def language_of(exercise: Exercise) -> str:
    """Name what an exercise is written in, as the messages call it."""
    return kind_of(exercise).title


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
        if not kind_of(exercise).traced:
            bad = [gate for gate in bad if gate.name != "sound"]
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


def _twice(source: str, **declared: Any) -> tuple[Exercise, str]:
    """Declare an exercise that asks for ``2 * x``, with an answer that is right."""
    exercise = Exercise(
        **{
            "id": "selftest",
            "stem": "selftest",
            "title": "The self-test",
            "kind": "warm-up",
            "points": 1,
            "language": "python",
            "entry": "function",
            "name": "twice",
            "source": "autograder/judge/selftest.py",
            "goal": "Double it.",
            "requirements": (),
            "problem": _problem,
            "reference": lambda given: {"out": 2 * torch.as_tensor(given["x"]).long()},
            "cases": (Case(f"n = {_N}", {}),),
            "tolerance": Tolerance(factor=1.0),
            "hints": ("", "", ""),
            "onward": "",
            **declared,
        }
    )
    return exercise, source


def _problem(case: Case, generator: torch.Generator, ranks: int = 1) -> Problem:
    shape = (_N,) if ranks == 1 else (ranks, _N)
    x = torch.randint(-99, 99, shape, dtype=torch.int32, generator=generator)
    return Problem({"x": x}, {"out": Output(shape, torch.int32)}, ranks=ranks)


def _kernel(case: Case, generator: torch.Generator) -> Problem:
    asked = _problem(case, generator)
    arguments = {**asked.arguments, "out": None}
    return Problem(arguments, asked.outputs, Launch((1,), (_N,)))


def _host(case: Case, generator: torch.Generator) -> Problem:
    return replace(_kernel(case, generator), launch=None)


def _clocked(case: Case, generator: torch.Generator) -> Problem:
    asked = _problem(case, generator)
    outputs = {"out": Output((_N,), torch.int64)}
    return replace(asked, outputs=outputs, cycles=4 * _N)


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
# Without a group's processes and their connections no rank is met.
_RANKS = """
def twice(x):
    dist.all_reduce(x.clone())
    return 2 * x
"""
_CIRCUIT = """
class twice(wiring.Component):
    def __init__(self):
        item = stream.Signature(signed(32))
        super().__init__({"x": In(item), "out": Out(item)})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += [
            self.out.payload.eq(self.x.payload << 1),
            self.out.valid.eq(self.x.valid),
            self.x.ready.eq(self.out.ready),
        ]
        return m
"""
_CPP = """%%cpp
extern "C" void twice(const int* x, int* out) {
    for (int i = 0; i < 32; i++) out[i] = 2 * x[i];
}
"""
_PRINTER = f'''
def twice(x):
    out = torch.empty_like(x)
    kw.cuda.compile("""{SMALLEST}""")["twice"][1, {_N}](x, out)
    return out
'''
_KNOWN = {
    "CUDA C++": _twice(
        f"%%cuda{SMALLEST}",
        language="cuda",
        entry="kernel",
        problem=_kernel,
        counts=moves(),
        structure=(Structure(holds=("LDG",)),),
    ),
    "Triton": _twice(
        _TRITON,
        prelude="import torch\nimport triton\nimport triton.language as tl\n",
        counts=moves(),
        structure=(Structure(holds=("triton.jit", "tl.load", "tl.sum")),),
    ),
    "CUDA C++ printed by Python": _twice(
        _PRINTER,
        prelude="import torch\nimport kernelwright as kw\n"
        "import kernelwright.expression\n",
        counts=moves(),
        structure=(Structure(holds=("kw.cuda",)), Structure(lacks=("DADD",))),
    ),
    "Python": _twice(
        "def twice(x):\n    return 2 * x\n",
        structure=(Structure(lacks=("torch.add",), runs_no=("logsumexp",)),),
    ),
    "C++": _twice(_CPP, language="cpp", problem=_host),
    "Ranks of torch.distributed": _twice(
        _RANKS,
        entry="ranks",
        problem=partial(_problem, ranks=2),
        prelude="import torch\nimport torch.distributed as dist\n",
    ),
    "Amaranth": _twice(
        _CIRCUIT,
        entry="circuit",
        problem=_clocked,
        prelude="from amaranth.hdl import *\nfrom amaranth.lib import stream, wiring\n"
        "from amaranth.lib.wiring import In, Out\n",
        counts=(Count("cycles", ideal=_N),),
        structure=(Structure(lacks=("$mul",)),),
    ),
}
LANGUAGES = tuple(_KNOWN)
