"""Attention of one query while keys and values pass by: sums of weights and values."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from solutions.streaming_fpga.max_rescale_unit import MaxRescaleUnit


# fmt: off
# [exercise:streaming_attention]
class StreamingAttention(wiring.Component):
    """Hold a query; give the sums of weights and weighed values."""

    def __init__(self, head_dim, width, sum_width):
        row = data.ArrayLayout(signed(width), head_dim)
        sums = data.ArrayLayout(signed(sum_width), head_dim)
        pair = data.StructLayout({"key": row, "value": row, "last": 1})
        out = data.StructLayout({"total": sum_width, "sums": sums})
        super().__init__({
            "query": In(stream.Signature(row)),
            "pair": In(stream.Signature(pair)),
            "out": Out(stream.Signature(out)),
        })
        self.d, self.width = head_dim, width
        self.row = row

    def elaborate(self, platform):
        """Describe it."""
        m = Module()
        d, w, out = self.d, self.width, self.out
        bits = 2 * w + (d - 1).bit_length()
        m.submodules.unit = unit = MaxRescaleUnit(bits)
        # [hole]
        held, query = Signal(), Signal(self.row)
        taken, ends = Signal(), Signal()
        pair, go = self.pair.payload, unit.score.ready
        m.d.comb += [
            self.pair.ready.eq(held & go),
            taken.eq(self.pair.valid & self.pair.ready),
            ends.eq(taken & pair.last),
            self.query.ready.eq(~held | ends),
        ]
        with m.If(self.query.ready):
            m.d.sync += [held.eq(self.query.valid),
                         query.eq(self.query.payload)]
        # Before the unit: products, sums of four, their sum.
        product = [Signal(signed(2 * w)) for _ in range(d)]
        four = [Signal(signed(2 * w + 2)) for _ in range(0, d, 4)]
        there, last = Signal(2), Signal(2)
        value = [Signal(self.row) for _ in range(3 + unit.latency)]
        with m.If(go):
            m.d.sync += [p.eq(query[i] * pair.key[i])
                         for i, p in enumerate(product)]
            m.d.sync += [f.eq(sum(product[4 * i : 4 * i + 4]))
                         for i, f in enumerate(four)]
            m.d.sync += [
                there.eq(there << 1 | taken),
                last.eq(last << 1 | pair.last),
                unit.score.valid.eq(there[1]),
                unit.score.payload.score.eq(sum(four)),
                unit.score.payload.last.eq(last[1]),
            ]
            m.d.sync += value[0].eq(pair.value)
            m.d.sync += [value[i].eq(value[i - 1])
                         for i in range(1, len(value))]
        # Behind it: weighed values, and the sums.
        free, weighed, ended = Signal(), Signal(), Signal(init=1)
        weight, shift, final = Signal(17), Signal(5), Signal()
        part = [Signal(signed(w + 17)) for _ in range(d)]
        m.d.comb += [free.eq(~out.valid | out.ready),
                     unit.out.ready.eq(free)]
        with m.If(free):
            m.d.sync += [p.eq(unit.out.payload.weight * value[-1][i])
                         for i, p in enumerate(part)]
            m.d.sync += [
                weight.eq(unit.out.payload.weight),
                shift.eq(unit.out.payload.shift),
                final.eq(unit.out.payload.last),
                weighed.eq(unit.out.valid),
                out.valid.eq(weighed & final),
            ]
            with m.If(weighed):
                sums, total = out.payload.sums, out.payload.total
                m.d.sync += [
                    total.eq(Mux(ended, 0, total >> shift) + weight),
                    ended.eq(final),
                ]
                m.d.sync += [
                    sums[i].eq(Mux(ended, 0, sums[i] >> shift) + part[i])
                    for i in range(d)
                ]
        # [/hole]
        return m
# [/exercise]
