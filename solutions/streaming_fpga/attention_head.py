"""A head whole: streaming attention, and behind it the division by the weights' sum."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from solutions.streaming_fpga.streaming_attention import StreamingAttention

GUARD = 4  # places behind the value's point that the division adds


def sum_width(width: int, most_keys: int) -> int:
    """Return the bits of a sum of so many weights times values, or of weights."""
    return 17 + width + (most_keys - 1).bit_length()


class Divider(wiring.Component):
    """Divide all sums by the total, a bit of every quotient a cycle.

    While it divides, the next query's keys pass by before it.
    """

    def __init__(self, head_dim: int, width: int, bits: int) -> None:
        sums = data.ArrayLayout(signed(bits), head_dim)
        row = data.ArrayLayout(signed(width + GUARD + 1), head_dim)
        given = data.StructLayout({"total": bits, "sums": sums})
        super().__init__(
            {"sums": In(stream.Signature(given)), "out": Out(stream.Signature(row))}
        )
        self.d, self.width, self.bits = head_dim, width, bits

    def elaborate(self, platform: Any) -> Module:
        """Describe it."""
        m = Module()
        given, out, steps = self.sums.payload, self.out, self.width + GUARD
        divisor = Signal(self.bits + self.width)
        rest = [Signal(self.bits + self.width + 1) for _ in range(self.d)]
        quotient = [Signal(steps) for _ in range(self.d)]
        negative = Signal(self.d)
        left = Signal(range(steps + 1))
        m.d.comb += self.sums.ready.eq((left == 0) & (~out.valid | out.ready))
        with m.If(out.ready):
            m.d.sync += out.valid.eq(0)
        with m.If(self.sums.valid & self.sums.ready):
            m.d.sync += [
                divisor.eq(given.total << (self.width - 1)), left.eq(steps)
            ]  # fmt: skip
            for i, each in enumerate(rest):
                m.d.sync += [
                    negative[i].eq(given.sums[i] < 0),
                    each.eq(Mux(given.sums[i] < 0, -given.sums[i], given.sums[i])),
                ]
        with m.If(left != 0):
            m.d.sync += [left.eq(left - 1), out.valid.eq(left == 1)]
            for each, bits in zip(rest, quotient, strict=True):
                less = Signal(signed(len(each) + 1))
                m.d.comb += less.eq(each - divisor)
                m.d.sync += each.eq(Mux(less < 0, each, less) << 1)
                m.d.sync += bits.eq(bits << 1 | (less >= 0))
        for i, bits in enumerate(quotient):
            m.d.comb += out.payload[i].eq(Mux(negative[i], -bits, bits))
        return m


class AttentionHead(wiring.Component):
    """Attention of one head: queries go in and outputs come out, a key a cycle.

    Args:
        head_dim: numbers of a key.
        width: bits of each; scores get ``SCORE_FRACTION`` fraction bits.
        most_keys: that a query may meet.

    An output has ``GUARD`` more fraction bits than a value.
    """

    def __init__(
        self, head_dim: int = 16, width: int = 8, most_keys: int = 1024
    ) -> None:
        row = data.ArrayLayout(signed(width), head_dim)
        pair = data.StructLayout({"key": row, "value": row, "last": 1})
        out = data.ArrayLayout(signed(width + GUARD + 1), head_dim)
        super().__init__(
            {
                "query": In(stream.Signature(row)),
                "pair": In(stream.Signature(pair)),
                "out": Out(stream.Signature(out)),
            }
        )
        self.head_dim, self.width = head_dim, width
        self.bits = sum_width(width, most_keys)

    def elaborate(self, platform: Any) -> Module:
        """Describe it."""
        m = Module()
        core = StreamingAttention(self.head_dim, self.width, self.bits)
        divider = Divider(self.head_dim, self.width, self.bits)
        m.submodules.core, m.submodules.divider = core, divider
        connect(m, flipped(self.query), core.query)
        connect(m, flipped(self.pair), core.pair)
        connect(m, core.out, divider.sums)
        connect(m, divider.out, flipped(self.out))
        return m
