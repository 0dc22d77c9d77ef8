"""Time the parts of a layer of experts: ``python -m benchmarks.sweep_moe``.

What a layer launches, one after the other, on the layer's own operands: so one sees
where its time goes. Parts that move bytes are beside a copy's speed, products beside
cuBLAS's of as many FLOPs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F

from benchmarks._candidates import Candidate, row_of, time_in_turn
from benchmarks.moe import DTYPE, LAYERS, Sizes, operands
from solutions.moe import grouped, hopper_grouped, permutation, routing
from solutions.moe.experts import height_for
from solutions.moe.grouped import TALL, Segments

ROUNDS, SECONDS = 3, 0.02


def parts(sizes: Sizes) -> Iterator[Candidate]:
    """Name what a layer launches, there and back."""
    _, experts, d_model, d_ff, k = sizes
    x, router, gate_up, down = operands(sizes, "cuda", DTYPE)
    logits = F.linear(x, router)
    weights, chosen = routing.routed(logits, k, True)
    pairs, height = chosen.numel(), height_for(chosen.numel(), experts)
    rows, begins, ends = permutation.placed(chosen, experts, TALL, 2**31 - 1)
    segments = Segments(begins, ends, TALL)
    tiles = grouped.listed(segments, height)
    moved = permutation.sent(x, rows, None, *segments, height, whole=False)
    hidden, both = hopper_grouped.grouped(
        moved, gate_up.mT, tiles, gated=True, keep=True
    )
    assert both is not None
    y, _ = hopper_grouped.grouped(hidden, down.mT, tiles)
    wide, narrow = pairs * d_model * 2, pairs * d_ff * 2
    one = 2.0 * pairs * d_model * d_ff

    def moves(name: str, run: Any, nbytes: int) -> Candidate:
        return Candidate(name, name, run, (), nbytes, "bfloat16")

    def computes(name: str, run: Any, flops: float) -> Candidate:
        return Candidate(name, name, run, (), 0, "bfloat16", flops=flops)

    copied = torch.empty(2**29, dtype=torch.uint8, device="cuda")
    again = torch.empty_like(copied)
    yield moves("copy of 512 MiB", lambda: again.copy_(copied), 2 * copied.nbytes)
    yield moves("router", lambda: F.linear(x, router), x.nbytes)
    yield moves("route", lambda: routing.routed(logits, k, True), logits.nbytes)
    yield moves(
        "place",
        lambda: permutation.placed(chosen, experts, TALL, 2**31 - 1),
        12 * pairs,
    )
    yield moves("list tiles", lambda: grouped.listed(segments, height), tiles.nbytes)
    yield moves(
        "send",
        lambda: permutation.sent(x, rows, None, *segments, height, whole=False),
        x.nbytes + wide,
    )
    yield moves(
        "gather", lambda: permutation.gathered(y, rows, weights), x.nbytes + wide
    )
    yield moves(
        "swiglu backward",
        lambda: permutation.swiglu_backward(both, hidden, rows, weights, *segments),
        6 * narrow,
    )
    for keep in (False, True):
        yield computes(
            "gated product" + ", kept" * keep,
            lambda keep=keep: hopper_grouped.grouped(
                moved, gate_up.mT, tiles, gated=True, keep=keep
            ),
            2 * one,
        )
    for name, a, matrices, flops in (
        ("down", hidden, down.mT, one),
        ("back through down", moved, down, one),
        ("back through gate and up", both, gate_up, 2 * one),
    ):
        yield computes(
            name, lambda a=a, m=matrices: hopper_grouped.grouped(a, m, tiles), flops
        )
    for name, a, b, flops in (
        ("gradient of down", moved, hidden, one),
        ("gradient of gate and up", both, moved, 2 * one),
    ):
        yield computes(
            name, lambda a=a, b=b: grouped.weights_gradient(a, b, segments), flops
        )
    flat, matrix = moved[:pairs], gate_up[0]
    yield computes("cuBLAS, rows by one expert", lambda: flat @ matrix.mT, 2 * one)


def main() -> int:
    """Time the parts of each layer, and print them."""
    for sizes in LAYERS:
        print(f"== {sizes.name}", flush=True)
        todo = list(parts(sizes))
        times = time_in_turn(todo, ROUNDS, SECONDS)
        for one in todo:
            row = row_of(one, times[one.name])
            rate = (
                f"{row['tflops']:7.0f} TFLOP/s"
                if one.flops
                else f"{row['gbps']:7.0f} GB/s"
            )
            print(f"{one.label:<32} {row['median_ms']:8.4f} ms {rate}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
