"""Simulate a circuit of streams, clock by clock, with pauses outside of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Module, Signal
from amaranth.lib import data
from amaranth.sim import Simulator

from kernelwright.errors import ArgumentError


@dataclass(frozen=True)
class Simulated:
    """What a simulation gave.

    Args:
        items: what the output stream gave, each a number or a flat list of them.
        cycles: how many passed until the last item was taken.
        passed: by port, in which cycle each of its items passed.
    """

    items: list[Any]
    cycles: int
    passed: Mapping[str, list[int]]


def simulate(
    circuit: Any,
    inputs: Mapping[str, Sequence[Any]],
    wanted: int,
    pauses: Mapping[str, Sequence[int]] | None = None,
    most: int = 100_000,
) -> Simulated:
    """Give streams their items until ``out`` has given as many as are wanted.

    Args:
        circuit: a component with an output stream ``out``.
        inputs: by input stream, its items: numbers, or flat lists that fill a
            payload's fields in their order.
        wanted: how many items of ``out``.
        pauses: by stream, in which cycles (0 or 1) the outside has an item or room
            for one; behind the end in every one.
        most: cycles before it is given up.

    Raises:
        ArgumentError: the items did not come.
    """
    pace = pauses or {}
    passed: dict[str, list[int]] = {name: [] for name in (*inputs, "out")}
    items: list[Any] = []
    top = Module()
    top.submodules += circuit
    beat = Signal()
    top.d.sync += beat.eq(~beat)
    cycle = 0

    def may(name: str) -> bool:
        steps = pace.get(name, ())
        return cycle >= len(steps) or bool(steps[cycle])

    async def bench(ctx: Any) -> None:
        nonlocal cycle
        offered = dict.fromkeys(inputs, False)
        while cycle < most and len(items) < wanted:
            for name, given in inputs.items():
                port, at = getattr(circuit, name), len(passed[name])
                # What was offered stays until it is taken.
                if not offered[name] and at < len(given) and may(name):
                    offered[name] = True
                    ctx.set(port.payload, _filled(port.payload, given[at]))
                ctx.set(port.valid, offered[name])
            ctx.set(circuit.out.ready, may("out"))
            for name in inputs:
                if offered[name] and ctx.get(getattr(circuit, name).ready):
                    offered[name] = False
                    passed[name].append(cycle)
            if ctx.get(circuit.out.valid) and may("out"):
                items.append(_flat(ctx.get(circuit.out.payload)))
                passed["out"].append(cycle)
            cycle += 1
            await ctx.tick()

    simulator = Simulator(top)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()
    if len(items) < wanted:
        raise ArgumentError(
            f"after {cycle:,} cycles out has given {len(items)} of {wanted} items; "
            "is a last missing among the inputs, or does a valid or ready stay low?"
        )
    return Simulated(items, cycle, passed)


def _filled(payload: Any, item: Any) -> Any:
    if not isinstance(payload, data.View):
        return int(item)
    left = iter([int(one) for one in item])
    return _take(payload.shape(), left)


def _take(layout: Any, left: Any) -> Any:
    """Fill a layout's fields in their order."""
    if isinstance(layout, data.ArrayLayout):
        return [_take(layout.elem_shape, left) for _ in range(layout.length)]
    if isinstance(layout, data.StructLayout):
        return {name: _take(shape, left) for name, shape in layout.members.items()}
    return next(left)


def _flat(item: Any) -> Any:
    """Return a payload's numbers in their order; a plain one as it is."""
    if not isinstance(item, data.Const):
        return int(item)
    layout = item.shape()
    names = range(layout.length) if isinstance(layout, data.ArrayLayout) else (
        layout.members
    )  # fmt: skip
    flat: list[int] = []
    for name in names:
        part = _flat(item[name])
        flat += part if isinstance(part, list) else [part]
    return flat
