"""A value times its weight, which must arrive together: chapter 17's detective.

As readers find it, the value's path is one register shorter than the weight's, and it
runs on while the rest waits.
"""

from __future__ import annotations

from amaranth.hdl import Module, Signal, signed, unsigned
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out


# fmt: off
# [exercise:latency_mismatch]
class WeighedValue(wiring.Component):
    """Multiply each value by 2^(-gap)."""

    def __init__(self, width):
        item = data.StructLayout({"gap": 12, "value": signed(width)})
        super().__init__({
            "item": In(stream.Signature(item)),
            "out": Out(stream.Signature(signed(width + 17))),
        })
        self.width = width

    def elaborate(self, platform):
        """Describe it."""
        m = Module()
        item, out = self.item.payload, self.out
        m.submodules.table = table = memory.Memory(
            shape=unsigned(17), depth=256,
            init=[round(2 ** (16 - i / 256)) for i in range(256)],
        )
        read = table.read_port()
        weight, places = Signal(17), Signal(4)
        there, advance = Signal(2), Signal()
        m.d.comb += [
            advance.eq(~out.valid | out.ready),
            self.item.ready.eq(advance),
            read.addr.eq(item.gap[:8]),
            read.en.eq(advance),
        ]
        # [hole]
        # [broken]
        # value = Signal(signed(self.width))
        # m.d.sync += value.eq(item.value)
        # with m.If(advance):
        #     m.d.sync += [
        #         places.eq(item.gap[8:]),
        #         weight.eq(read.data >> places),
        #         out.payload.eq(weight * value),
        #         there.eq(there << 1 | self.item.valid),
        #         out.valid.eq(there[1]),
        #     ]
        # [/broken]
        early = Signal(signed(self.width))
        value = Signal(signed(self.width))
        with m.If(advance):
            m.d.sync += [
                early.eq(item.value),
                value.eq(early),
                places.eq(item.gap[8:]),
                weight.eq(read.data >> places),
                out.payload.eq(weight * value),
                there.eq(there << 1 | self.item.valid),
                out.valid.eq(there[1]),
            ]
        # [/hole]
        return m
# [/exercise]
