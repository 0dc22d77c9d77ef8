"""Weights of four bits beside torch's: ``python -m benchmarks.int4``.

    python -m benchmarks.int4 --check         # exit 1 below a floor of this device
    python -m benchmarks.int4 --out FOLDER    # not into benchmarks/results

Each call gets other operands than the one before, so that no weight is in the L2 cache.
Of one token the peer is torch's own product with four bits, which takes bf16 and groups
of 128; of more it is torch's product with the weight in bf16, which is faster there.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

import kernelwright as kw
from benchmarks import _command, _peers
from benchmarks._candidates import Candidate, Row
from benchmarks._sweep import Sweep, Sweeps
from solutions.int4 import Packed, dequantize, linear, pack, product, quantize
from solutions.int4.product import Few, Hopper, Many, Plan, plan_for

SIZE, GROUP = 8192, 128
TOKENS = (1, 8, 16, 32, 64, 128, 256)
ROUNDS, SECONDS = 5, 0.05

# Lowest ratio to the peer that is no regression, by device.
FLOORS: dict[str, dict[str, float]] = {
    "nvidia-h200": {
        "w4a16_1": 1.45,
        "w4a16_8": 2.15,
        "w4a16_16": 1.45,
        "w4a16_32": 1.3,
        "w4a16_64": 1.35,
        "w4a16_128": 0.97,
        "w4a16_256": 0.72,
    }
}


def main() -> int:
    """Check, measure, store; return 0 if all is right and above its floor."""
    options = _command.command_line(__doc__).parse_args()
    return _command.run("int4", options, check_values, measured, FLOORS, "ratio")


def measured(options: argparse.Namespace) -> _command.Measured:
    """Time the products, a number of tokens after the other."""
    rows: list[Row] = []
    for tokens in TOKENS:
        todo = list(products(tokens, "cuda"))
        rows += _peers.beside(todo, ROUNDS, SECONDS)
        yield rows, {"size": SIZE, "group_size": GROUP}


def check_values(device: str) -> None:
    """Hold each product against the restored weight in float64."""
    size = SIZE if device == "cuda" else 256
    for tokens in TOKENS if device == "cuda" else TOKENS[:3]:
        x, weight, packed = operands(tokens, device, size)
        right = x.double() @ dequantize(quantize(weight, GROUP), torch.float64).mT
        near = 2 * torch.finfo(x.dtype).eps * float(right.abs().max())
        got = linear(x, packed).double()
        torch.testing.assert_close(got, right, rtol=0, atol=near)
        print(f"right on {device}: {tokens} tokens")


def operands(
    tokens: int, device: str, size: int = SIZE
) -> tuple[torch.Tensor, torch.Tensor, Packed]:
    """Draw x and a weight, and pack the weight."""
    x = torch.randn(tokens, size, device=device).bfloat16()
    weight = torch.randn(size, size, device=device).bfloat16()
    return x, weight, pack(quantize(weight, GROUP))


def multiplied(
    x: torch.Tensor, words: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor
) -> torch.Tensor:
    """Multiply by a packed weight, given as its tensors: each call gets others."""
    return linear(x, Packed(words, scales, zeros, SIZE, SIZE, GROUP))


def products(tokens: int, device: str) -> Iterator[Candidate]:
    """Name ours, torch's with four bits, and torch's with the weight in bf16."""
    x, weight, packed = operands(tokens, device)
    name = f"w4a16_{tokens}"
    peer = (f"{name}_torch" if tokens == 1 else f"{name}_bf16",)
    known: dict[str, Any] = {"flops": 2.0 * tokens * SIZE**2, "peers": peer}
    ends = x.nbytes + tokens * SIZE * 2
    words, zeros = torchs_words(weight)
    yield Candidate(
        f"{name}_bf16", f"torch, the weight in bf16, {tokens} tokens", F.linear,
        (x, weight), weight.nbytes + ends, "bfloat16", **known,
    )  # fmt: skip
    yield Candidate(
        f"{name}_torch", f"torch, `_weight_int4pack_mm`, {tokens} tokens",
        lambda x, words, zeros: torch._weight_int4pack_mm(x, words, GROUP, zeros),
        (x, words, zeros), words.nbytes + zeros.nbytes + ends, "bfloat16", **known,
    )  # fmt: skip
    yield Candidate(
        name, f"`linear`, {tokens} tokens", multiplied, (x, *packed[:3]),
        packed.nbytes + ends, "bfloat16", **known,
    )  # fmt: skip


def torchs_words(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantize and pack a weight as torch's product takes it.

    Two codes a byte, the first in the upper half; a scale and what code 8 is worth for
    each group of each row, groups first.
    """
    rounded = quantize(weight, GROUP)
    pairs = rounded.codes[:, ::2] << 4 | rounded.codes[:, 1::2]
    words = torch._convert_weight_to_int4pack(pairs.contiguous(), 8)
    worth = torch.stack((rounded.scales, torch.zeros_like(rounded.scales)), -1)
    return words, worth.transpose(0, 1).contiguous()


# --- other tiles --------------------------------------------------------------------


def plans(tokens: int) -> Iterator[Plan]:
    """Give the choices for a number of tokens."""
    if tokens <= 16:
        tiles = kw.cdiv(tokens, 8)
        for warps, depth in itertools.product((4, 8, 16), (1, 2, 3, 4)):
            yield Few(tiles, warps, depth)
    if tokens > 8:
        for tiles, splits in itertools.product((1, 2), (1, 2, 4, 8)):
            if 64 * (tiles - 1) < tokens:
                yield Hopper(tiles, splits, kw.cdiv(Hopper(tiles, 1, 1).columns, GROUP))
    most = min(8, kw.cdiv(tokens, 8))
    for splits in (1, 2, 4):
        yield Many(most, splits, 8, 1)


def by_plan(plan: Any, x: torch.Tensor, *weight: torch.Tensor) -> torch.Tensor:
    """Multiply by a plan."""
    product.plan_for = lambda *_: plan
    packed = Packed(*weight, SIZE, SIZE, GROUP)  # type: ignore[call-arg, arg-type]
    return product.multiplied(x, packed, None)


def sweep(tokens: int) -> Sweep:
    """Name the choices for a number of tokens; right is what today's computes."""
    x, weight, packed = operands(tokens, "cuda")
    today = plan_for(tokens, SIZE, SIZE, GROUP, hopper=True)
    flops = 2.0 * tokens * SIZE**2
    every = {"today": today} | {str(p): p for p in plans(tokens) if p != today}
    found = [
        Candidate(name, name, by_plan, (plan, x, *packed[:3]), flops=flops)
        for name, plan in every.items()
    ]
    peer = Candidate("bf16", "bf16", F.linear, (x, weight), flops=flops)
    right = by_plan(today, x, *packed[:3]).double()
    title = f"{tokens} tokens, {SIZE} x {SIZE}; today {today}"
    return Sweep(title, found, [peer], right)


def sweeps() -> Sweeps:
    """Sweep the tiles of every number of tokens."""
    return [partial(sweep, tokens) for tokens in TOKENS]


if __name__ == "__main__":
    sys.exit(main())
