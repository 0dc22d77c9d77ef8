"""The online softmax as a unit: a running reference, a shift and a weight."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, signed, unsigned
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out


# fmt: off
# [exercise:max_rescale_unit]
class MaxRescaleUnit(wiring.Component):
    """Turn scores into weights, and say how far older ones must shift."""

    latency = 5

    def __init__(self, score_width):
        score = data.StructLayout({"score": signed(score_width), "last": 1})
        weight = data.StructLayout({"weight": 17, "shift": 5, "last": 1})
        super().__init__({
            "score": In(stream.Signature(score)),
            "out": Out(stream.Signature(weight)),
        })
        self.width = score_width

    def elaborate(self, platform):
        """Describe it."""
        m = Module()
        score, out = self.score, self.out
        m.submodules.table = table = memory.Memory(
            shape=unsigned(17), depth=256,
            init=[round(2 ** (16 - i / 256)) for i in range(256)],
        )
        read = table.read_port()
        # [hole]
        w = self.width
        there, last = Signal(4), Signal(4)
        first = Signal(init=1)
        s, ceiling = Signal(signed(w)), Signal(signed(w - 7))
        highest, new = Signal(signed(w - 7)), Signal(signed(w - 7))
        rise = Signal(w - 7)
        gap, entry = Signal(w + 1), Signal(17)
        whole, places = Signal(5), Signal(5)
        shift = [Signal(5), Signal(5)]
        advance = Signal()
        m.d.comb += [
            advance.eq(~out.valid | out.ready),
            score.ready.eq(advance),
            new.eq(Mux(first | (ceiling > highest), ceiling, highest)),
            read.addr.eq(gap[:8]),
            read.en.eq(advance),
        ]
        with m.If(advance):
            m.d.sync += [
                Cat(there, out.valid).eq(Cat(score.valid, there)),
                Cat(last, out.payload.last).eq(
                    Cat(score.payload.last, last)),
                # Stage 1: the next whole number.
                s.eq(score.payload.score),
                ceiling.eq((score.payload.score + 255) >> 8),
                # Stage 2: how far the reference rises, and is above.
                gap.eq((new << 8) - s),
                rise.eq(Mux(first, 0, new - highest)),
                # Stage 3: the table is read.
                whole.eq(Mux(gap[8:] > 31, 31, gap[8:])),
                shift[0].eq(Mux(rise > 31, 31, rise)),
                # Stage 4: a memory is slow, so nothing else happens.
                entry.eq(read.data), places.eq(whole),
                shift[1].eq(shift[0]),
                # Stage 5: the whole part shifts.
                out.payload.weight.eq(entry >> places),
                out.payload.shift.eq(shift[1]),
            ]
            with m.If(there[0]):
                m.d.sync += [highest.eq(new), first.eq(last[0])]
        # [/hole]
        return m
# [/exercise]
