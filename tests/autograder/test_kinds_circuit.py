"""An exercise whose answer is a circuit, simulated clock by clock."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hostile import fails
from small_exercises import give_prints, make_exercise

from autograder.exercise import (
    Arguments,
    Case,
    Count,
    Exercise,
    Output,
    Outputs,
    Problem,
    Structure,
)
from autograder.judge.judge import Judge
from autograder.submission.submitted import Cells

pytest.importorskip("amaranth")


def _problem(case: Case, generator: torch.Generator) -> Problem:
    n = case.sizes["n"]
    a, b = torch.randint(-100, 100, (2, n), generator=generator)
    pace = torch.randint(0, 2, (2, n), generator=generator)
    values: dict[str, Any] = {"a": a, "b": b, "width": 8}
    if case.regime == "pauses":
        values |= {"a.valid": pace[0], "out.ready": pace[1]}
    return Problem(values, {"out": Output((n,), torch.int64)}, cycles=4 * n + 16)


def _sums(arguments: Arguments) -> Outputs:
    a, b = arguments["a"], arguments["b"]
    assert isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)
    return {"out": (a * b).cumsum(0)}


MAC = make_exercise(
    "Mac",
    entry="circuit",
    problem=_problem,
    reference=_sums,
    cases=(
        Case("n = 12", {"n": 12}),
        Case("n = 12, with pauses", {"n": 12}, regime="pauses"),
    ),
    hidden=lambda g: [Case("n = 1", {"n": 1})],
    structure=(Structure(holds=("$mul",), lacks=("$divfloor",)),),
    counts=(Count("cycles", ideal=12, times=14 / 12),),
    prelude="from amaranth.hdl import *\nfrom amaranth.lib import stream, wiring\n"
    "from amaranth.lib.wiring import In, Out\n",
)
give_prints(
    MAC,
    fresh=(
        "Each output is one product: the sum so far is lost.",
        lambda x: {"out": x["a"] * x["b"]},
    ),
)
RIGHT = """# exercise: Mac
class Mac(wiring.Component):
    def __init__(self, width):
        item = stream.Signature(signed(width))
        sums = stream.Signature(signed(32))
        super().__init__({"a": In(item), "b": In(item), "out": Out(sums)})

    def elaborate(self, platform):
        m = Module()
        total = Signal(signed(32))
        go = Signal()
        m.d.comb += [
            go.eq(self.a.valid & self.b.valid & self.out.ready),
            self.a.ready.eq(go),
            self.b.ready.eq(go),
            self.out.valid.eq(self.a.valid & self.b.valid),
            self.out.payload.eq(total + self.a.payload * self.b.payload),
        ]
        with m.If(go):
            m.d.sync += total.eq(self.out.payload)
        return m
"""


def graded(judge: Judge, cell: str, exercise: Exercise = MAC) -> Any:
    return judge.grade(exercise, Cells({"Mac": cell}))


def test_a_circuit_is_simulated_and_its_cycles_are_counted(judge: Judge) -> None:
    result = graded(judge, RIGHT)
    assert result.passed, result.message
    assert (result.earned, result.words) == (10.0, "correct (simulated)")
    assert result.gate("counts").message == "12 cycles (ideal 12)"
    slow = (
        RIGHT.replace("go = Signal()", "go, turn = Signal(), Signal()")
        .replace(".valid.eq(", ".valid.eq(turn & ")
        .replace("go.eq(", "go.eq(turn & ")
        .replace("with m.If", "m.d.sync += turn.eq(~turn)\n        with m.If")
    )
    result = graded(judge, slow)
    assert (result.earned, result.words) == (7.5, "correct, moves too much")
    assert result.message.startswith("It takes 24 cycles; the ideal is 12 (at most 14")


@pytest.mark.parametrize(
    ("old", "new", "says", "status"),
    [
        ("total + self.a", "self.a", "Each output is one product", "failed"),
        ("total + self.a", "total - self.a", "out[0] is", "failed"),
        # A stream that does not wait for the other loses what comes too early.
        (
            "self.b.ready.eq(go)", "self.b.ready.eq(1)",
            "With n = 12, with pauses: after 64 cycles out has given", "timeout",
        ),
        (
            "self.out.valid.eq(", "self.out.valid.eq(0 & ",
            "out has given 0 of 12, and 12 of 12 items of a are taken, 12 of 12 items "
            "of b are taken. What was taken and not given is lost, or never leaves",
            "timeout",
        ),
        ("go = Signal()", "go = Signal(); m.d.comb += Signal().eq(total // 3)",
         "The circuit holds $divfloor.", "failed"),
        ('"out": Out', '"sums": Out', "Mac has no port out. Its ports: a, b, sums.",
         "failed"),
        ("wiring.Component", "dict", "Mac makes no component of Amaranth's", "failed"),
        ("Signal(signed(32))", "Signl(1)", "line 10 (`", "failed"),
        ("return m", "while True: pass", "still running after", "timeout"),
    ],
)  # fmt: skip
def test_a_wrong_circuit_is_told_why(
    judge: Judge, old: str, new: str, says: str, status: str
) -> None:
    assert old in RIGHT
    fails(graded(judge, RIGHT.replace(old, new)), says, status)


def test_an_untouched_circuit_earns_nothing(judge: Judge) -> None:
    stub = (
        RIGHT.split("        m = Module()")[0] + "        raise NotImplementedError\n"
    )
    fails(graded(judge, stub), "nothing is written here yet")


LATE = make_exercise(
    "Mac",
    entry="circuit",
    problem=lambda case, g: Problem(
        {"x": torch.randint(0, 16, (9,), generator=g)},
        {"y": Output((9,), torch.int32)},
        cycles=20,
    ),
    reference=lambda given: {"y": given["x"] + 1},
    cases=(Case("nine", {}),),
    hidden=lambda g: (),
    prelude=MAC.prelude,
)
PORTS = """# exercise: Mac
class Mac(wiring.Component):
    latency = 2
    x: In(4)
    y: Out(5)

    def elaborate(self, platform):
        m = Module()
        first = Signal(4)
        m.d.sync += [first.eq(self.x), self.y.eq(first + 1)]
        return m
"""


def test_a_port_that_is_no_stream_is_late_by_its_latency(judge: Judge) -> None:
    assert graded(judge, PORTS, LATE).passed
    fails(graded(judge, PORTS.replace("= 2", "= 1"), LATE), "y[0] is 1; wanted")
    fails(
        graded(judge, PORTS.replace("= 2", "= 30"), LATE),
        "after 20 cycles y has given 0 of 9: it gives one a cycle, 30 cycles late.",
        "timeout",
    )
