"""Time products with four bits by other tiles: ``python -m benchmarks.sweep_int4``.

``solutions.int4.product.plan_for`` chooses by hand. Every choice is held against
today's result, then timed in rounds beside it and torch's product with the weight in
bf16; what is printed is the fastest first.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

import kernelwright as kw
from benchmarks._candidates import Candidate, print_fastest, time_in_turn
from benchmarks.int4 import GROUP, SIZE, operands
from solutions.int4 import product
from solutions.int4.layout import Packed
from solutions.int4.product import Few, Hopper, Many, Plan, plan_for

TOKENS = (1, 8, 16, 32, 64, 128, 256)
ROUNDS, SECONDS = 3, 0.01


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


def run(plan: Any, x: torch.Tensor, *weight: torch.Tensor) -> torch.Tensor:
    """Multiply by a plan."""
    product.plan_for = lambda *_: plan
    packed = Packed(*weight, SIZE, SIZE, GROUP)  # type: ignore[call-arg, arg-type]
    return product.multiplied(x, packed, None)


def sweep(tokens: int) -> None:
    """Check and time the choices for a number of tokens."""
    x, weight, packed = operands(tokens, "cuda")
    today = plan_for(tokens, SIZE, SIZE, GROUP, hopper=True)
    right = run(today, x, *packed[:3])
    near = 4 * torch.finfo(x.dtype).eps * float(right.abs().max())
    todo = [Candidate("bf16", "bf16", F.linear, (x, weight))]
    for plan in {today: None} | dict.fromkeys(plans(tokens)):
        name = "today" if plan == today else str(plan)
        try:
            off = float((run(plan, x, *packed[:3]) - right).abs().max())
        except Exception as problem:  # whatever one does, the next is tried
            print(f"  FAILS {name}: {str(problem).splitlines()[0][:120]}")
            continue
        if not off <= near:
            print(f"  WRONG {name}: off by {off:.2g}, {near:.2g} are rounding")
            continue
        todo.append(Candidate(name, name, partial(run, plan), (x, *packed[:3])))
    print(f"== {tokens} tokens, {SIZE} x {SIZE}; today {today}")
    print_fastest(time_in_turn(todo, ROUNDS, SECONDS), ("bf16", "today"), 12)


def main() -> int:
    """Sweep every number of tokens, or those that the arguments name."""
    if kw.cuda.backend() != "gpu":
        print("no NVIDIA GPU: nothing was timed")
        return 0
    for tokens in map(int, sys.argv[1:] or TOKENS):
        sweep(tokens)
    return 0


if __name__ == "__main__":
    sys.exit(main())
