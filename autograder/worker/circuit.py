"""A circuit in Amaranth: simulated clock by clock, between what its ports are given.

A port that is a stream takes and gives an item whenever valid and ready meet; any other
holds the item of the cycle, and gives it as many cycles later as the component's
``latency`` says. A tensor of rows gives each row's numbers to the fields of a
payload, in their order, and takes them so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, ClassVar

import torch

from autograder.worker.entry import Entry, Given, Made, WrongReturn, describe_returned
from autograder.worker.tensors import DTYPES
from autograder.worker.troubles import Told, Trouble
from autograder.worker.wire import Header

_CELL = re.compile(r"^\s*cell (\$\w+)", re.MULTILINE)
_REGISTER = re.compile(r"cell \$dff .*\n\s*parameter \\WIDTH (\d+)")
_PACE = (".valid", ".ready")


class Circuit(Entry):
    """A component: the case's numbers make it, its tensors are what ports are given."""

    noun: ClassVar[str] = "component"

    def prepare(self) -> str:
        """Ask for the simulator."""
        if find_spec("amaranth"):
            return ""
        return (
            "circuits are simulated by Amaranth, which is not installed here. Mend: "
            "pip install amaranth"
        )

    def call(self, answer: Any, given: Given, header: Header) -> Made:
        """Simulate it until every output is there."""
        component = _component(answer, given, header)
        inputs, outputs = _ports(component, given, header)
        cycles = _simulate(component, inputs, outputs, header["cycles"])
        types = [DTYPES[spec["dtype"]] for spec in header["outputs"]]
        tensors, described = describe_returned(
            [
                torch.tensor(out.items, dtype=dtype)
                for out, dtype in zip(outputs, types, strict=True)
            ]
        )
        counted = {"cycles": cycles, **_hardware(_component(answer, given, header))}
        return Made(tensors, {"counted": counted}, described)


def cells_of(answer: Any, given: Given, header: Header) -> list[str]:
    """Return the kinds of cells that a circuit is made of: ``$add``, ``$divfloor``."""
    from amaranth.back import rtlil

    text = rtlil.convert(_component(answer, given, header))
    return sorted(set(_CELL.findall(text)))


def _hardware(component: Any) -> dict[str, int]:
    """Count what it is described with: multipliers, and bits of its registers."""
    from amaranth.back import rtlil

    text = rtlil.convert(component)
    bits = [int(width) for width in _REGISTER.findall(text)]
    return {"multipliers": text.count("cell $mul "), "register bits": sum(bits)}


def _component(answer: Any, given: Given, header: Header) -> Any:
    """Make the component of the case's numbers.

    Raises:
        WrongReturn: it is none, or lacks a port.
    """
    from amaranth.lib.wiring import Component

    numbers = {
        spec["name"]: value
        for spec, value in zip(header["arguments"], given.values, strict=True)
        if spec["kind"] != "tensor"
    }
    component = answer(**numbers)
    name = header["name"]
    if not isinstance(component, Component):
        raise WrongReturn(
            f"{name} makes no component of Amaranth's; wanted a class that inherits "
            "from wiring.Component."
        )
    ports = [spec["name"] for spec in [*header["arguments"], *header["outputs"]]]
    for port in ports:
        if port in numbers or port.endswith(_PACE):
            continue
        if port not in component.signature.members:
            there = ", ".join(component.signature.members) or "none"
            raise WrongReturn(f"{name} has no port {port}. Its ports: {there}.")
    return component


@dataclass
class _Port:
    """A port of a component while it is simulated.

    Args:
        name: the port's.
        port: the signal, or the stream.
        pace: of a stream, the cycles in which the outside is ready for its next item;
            behind its end, every one. 2 is ready once an item was seen to be offered.
        items: what it is given, or what was taken from it.
        wanted: how many are to pass.
        latency: of an output that is no stream, by how many cycles it is late.
    """

    name: str
    port: Any
    pace: Sequence[int]
    items: list[Any]
    wanted: int
    latency: int = 0
    passed: int = 0
    offered: bool = False
    began: int = -1

    @property
    def is_stream(self) -> bool:
        """Whether it says when an item passes."""
        return all(hasattr(self.port, name) for name in ("payload", "valid", "ready"))

    def give(self, ctx: Any, cycle: int) -> None:
        """Set an input for this cycle."""
        if not self.is_stream:
            item = self.items[min(cycle, self.wanted - 1)] if self.wanted else 0
            if cycle >= self.wanted:
                item = [0] * len(item) if isinstance(item, list) else 0
            ctx.set(self.port, filled(self.port, item))
            return
        # What was offered stays until it is taken.
        if not self.offered and self.passed < self.wanted and self._ready(cycle):
            self.offered = True
            payload = self.port.payload
            ctx.set(payload, filled(payload, self.items[self.passed]))
        ctx.set(self.port.valid, self.offered)

    def open(self, ctx: Any, cycle: int) -> None:
        """Say of an output whether an item is taken in this cycle."""
        if self.is_stream:
            polite = cycle < len(self.pace) and self.pace[cycle] == 2
            ctx.set(self.port.ready, self.offered if polite else self._ready(cycle))

    def given(self, ctx: Any, cycle: int) -> None:
        """Note whether an input's item passes at the end of this cycle."""
        if self.offered and ctx.get(self.port.ready):
            self.offered = False
            self._count(cycle)

    def take(self, ctx: Any, cycle: int) -> None:
        """Take an output's item, if one passes at the end of this cycle."""
        if self.passed == self.wanted:
            return
        if not self.is_stream:
            if cycle < self.latency:
                return
            item = ctx.get(self.port)
        elif ctx.get(self.port.valid) and ctx.get(self.port.ready):
            item, self.offered = ctx.get(self.port.payload), False
        else:
            self.offered = bool(ctx.get(self.port.valid))
            return
        self.items.append(flat(item))
        self._count(cycle)

    def _count(self, cycle: int) -> None:
        self.passed += 1
        if self.began < 0:
            self.began = cycle

    def _ready(self, cycle: int) -> bool:
        return cycle >= len(self.pace) or bool(self.pace[cycle])


def filled(port: Any, item: Any) -> Any:
    """Return what a port or payload is set to: a row fills its fields in their order.

    Raises:
        WrongReturn: the row has more numbers, or fewer.
    """
    from amaranth.lib import data

    if not isinstance(port, data.View):
        if isinstance(item, list):
            raise WrongReturn(
                f"a port takes one number and is given rows of {len(item)}; wanted a "
                "payload with as many fields (data.StructLayout, data.ArrayLayout)."
            )
        return item
    row = item if isinstance(item, list) else [item]
    left = iter(row)
    try:
        made = _take(port.shape(), left)
    except StopIteration:
        made = None
    if made is None or next(left, None) is not None:
        raise WrongReturn(
            f"a payload is {port.shape()}; wanted fields for {len(row)} numbers."
        )
    return made


def _take(layout: Any, left: Iterator[int]) -> Any:
    from amaranth.lib import data

    if isinstance(layout, data.ArrayLayout):
        return [_take(layout.elem_shape, left) for _ in range(layout.length)]
    if isinstance(layout, data.StructLayout):
        return {name: _take(shape, left) for name, shape in layout.members.items()}
    return next(left)


def flat(item: Any) -> int | list[int]:
    """Return what a port gave: a number, or its fields' numbers in their order."""
    from amaranth.lib import data

    if not isinstance(item, data.Const):
        return int(item)
    layout = item.shape()
    array = isinstance(layout, data.ArrayLayout)
    numbers: list[int] = []
    for name in range(layout.length) if array else layout.members:
        part = flat(item[name])
        numbers += part if isinstance(part, list) else [part]
    return numbers


def _ports(
    component: Any, given: Given, header: Header
) -> tuple[list[_Port], list[_Port]]:
    """Return the inputs and the outputs, with what they are to give and take."""
    items = {each.name: each.tensor.tolist() for each in given.placed}
    pace = {name: items.pop(name) for name in list(items) if name.endswith(_PACE)}

    def port(name: str, values: list[Any], wanted: int, paced: str) -> _Port:
        latency = int(getattr(component, "latency", 0))
        at = getattr(component, name)
        return _Port(name, at, pace.get(name + paced, ()), values, wanted, latency)

    inputs = [port(name, it, len(it), ".valid") for name, it in items.items()]
    outputs = [
        port(spec["name"], [], spec["shape"][0], ".ready") for spec in header["outputs"]
    ]
    return inputs, outputs


def _simulate(
    component: Any, inputs: list[_Port], outputs: list[_Port], most: int
) -> int:
    """Simulate until all outputs are there; return the cycles that it took.

    Raises:
        Told: some are not after so many cycles.
    """
    from amaranth.hdl import Module, Signal
    from amaranth.sim import Simulator

    top = Module()
    top.submodules += component
    # There is a clock also where the circuit has no register.
    beat = Signal()
    top.d.sync += beat.eq(~beat)
    cycle = 0

    async def bench(ctx: Any) -> None:
        nonlocal cycle
        while cycle < most and any(out.passed < out.wanted for out in outputs):
            for each in inputs:
                each.give(ctx, cycle)
            for out in outputs:
                out.open(ctx, cycle)
            # All is set: what stands now is what the edge at its end will see.
            for each in inputs:
                each.given(ctx, cycle)
            for out in outputs:
                out.take(ctx, cycle)
            cycle += 1
            await ctx.tick()

    simulator = Simulator(top)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    for out in outputs:
        if out.passed < out.wanted:
            raise Told(Trouble("timeout", _silence(out, inputs, most)))
    _hold_to_latency(component, inputs, outputs)
    return cycle


def _hold_to_latency(component: Any, inputs: list[_Port], outputs: list[_Port]) -> None:
    """Ask of a stream whose component has a latency that its first item has it.

    Raises:
        WrongReturn: it has another.
    """
    says = getattr(component, "latency", None)
    if says is None or len(inputs) != 1 or any(p.pace for p in (*inputs, *outputs)):
        return
    for out in outputs:
        took = out.began - inputs[0].began
        if out.is_stream and out.wanted and took != says:
            raise WrongReturn(
                f"the component's latency is {says}, and its first item comes {took} "
                "cycles after it was taken: who counts on latency would be wrong."
            )


def _silence(out: _Port, inputs: list[_Port], most: int) -> str:
    """Say what did not come, and what was taken."""
    words = f"after {most:,} cycles {out.name} has given {out.passed} of {out.wanted}"
    taken = [
        f"{each.passed} of {each.wanted} items of {each.name} are taken"
        for each in inputs
        if each.is_stream
    ]
    if not taken:
        return f"{words}: it gives one a cycle, {out.latency} cycles late."
    told = f"{words}, and {', '.join(taken)}."
    if all(each.passed == each.wanted for each in inputs if each.is_stream):
        return (
            f"{told} What was taken and not given is lost, or never leaves: which "
            "register takes the next item while its own still waits, and is "
            f"{out.name}'s valid up while an item stands there?"
        )
    return f"{told} Which valid or ready stays low?"
