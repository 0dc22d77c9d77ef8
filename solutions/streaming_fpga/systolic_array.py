"""A systolic array: numbers pass from cell to cell, and every cell multiplies."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out


class SystolicArray(wiring.Component):
    """Multiply matrices: a column of A and a row of B go in each cycle.

    Cell (i, j) is given A's numbers by its left neighbour and B's by the one above,
    keeps the sum of their products, and passes both on. A's row i enters i cycles
    late, B's column j enters j cycles late, so that what belongs together meets.

    Args:
        size: rows and columns of cells.
        width: bits of a number.
        sum_width: bits of a sum.

    ``pair`` takes (a: size numbers, b: size numbers, last); ``out`` gives the product,
    size * size sums, row by row, after each ``last``.
    """

    def __init__(self, size: int = 4, width: int = 8, sum_width: int = 24) -> None:
        side = data.ArrayLayout(signed(width), size)
        pair = data.StructLayout({"a": side, "b": side, "last": 1})
        out = data.ArrayLayout(signed(sum_width), size * size)
        super().__init__(
            {"pair": In(stream.Signature(pair)), "out": Out(stream.Signature(out))}
        )
        self.size, self.width, self.sum_width = size, width, sum_width

    def elaborate(self, platform: Any) -> Module:
        """Describe it: one cell after the other, with the delays before and behind."""
        m = Module()
        n, pair, out = self.size, self.pair.payload, self.out
        advance = Signal()
        m.d.comb += [
            advance.eq(~out.valid | out.ready),
            self.pair.ready.eq(advance),
        ]

        def late(signal: Any, cycles: int) -> Any:
            """Delay by so many cycles that advance."""
            for _ in range(cycles):
                kept = Signal.like(signal)
                with m.If(advance):
                    m.d.sync += kept.eq(signal)
                signal = kept
            return signal

        taken, last = self.pair.valid, pair.last
        for i in range(n):
            for j in range(n):
                # What stands in cell (i, j) entered i + j cycles ago.
                a, b = late(pair.a[i], i + j), late(pair.b[j], i + j)
                total, ended = Signal(signed(self.sum_width)), Signal(init=1)
                here, ends = late(taken, i + j), late(last, i + j)
                with m.If(advance & here):
                    m.d.sync += [
                        total.eq(Mux(ended, 0, total) + a * b),
                        ended.eq(ends),
                    ]
                m.d.comb += out.payload[i * n + j].eq(late(total, 2 * n - 2 - i - j))
        done = late(taken & last, 2 * n - 2)
        with m.If(advance):
            m.d.sync += out.valid.eq(done)
        return m
