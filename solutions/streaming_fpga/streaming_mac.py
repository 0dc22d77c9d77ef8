"""A multiply-accumulate in two stages: a product and a sum in every cycle."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out


# fmt: off
# [exercise:streaming_mac]
class StreamingMac(wiring.Component):
    """Sum products a * b; each sum up to here is an item of `out`."""

    def __init__(self, width, sum_width):
        pair = data.StructLayout(
            {"a": signed(width), "b": signed(width), "last": 1}
        )
        super().__init__({
            "pair": In(stream.Signature(pair)),
            "out": Out(stream.Signature(signed(sum_width))),
        })
        self.width = width

    def elaborate(self, platform):
        """Describe it."""
        m = Module()
        pair, out = self.pair, self.out
        # [hole]
        product = Signal(signed(2 * self.width))
        there, last, ended = Signal(), Signal(), Signal(init=1)
        advance = Signal()
        m.d.comb += advance.eq(~out.valid | out.ready)
        m.d.comb += pair.ready.eq(advance)
        with m.If(advance):
            m.d.sync += [
                product.eq(pair.payload.a * pair.payload.b),
                last.eq(pair.payload.last),
                there.eq(pair.valid),
                out.valid.eq(there),
            ]
            with m.If(there):
                before = Mux(ended, 0, out.payload)
                m.d.sync += [out.payload.eq(before + product),
                             ended.eq(last)]
        # [/hole]
        return m
# [/exercise]
