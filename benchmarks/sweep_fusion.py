"""Time fused kernels with other launches: ``python -m benchmarks.sweep_fusion``.

``solutions.fusion.source`` fixes how many threads make a block and how many packs of 16
bytes each has. Every choice is timed in rounds beside torch.compile and a copy of as
many bytes; what is printed is the fastest first.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

import torch

import kernelwright as kw
from benchmarks import _peers
from benchmarks._candidates import Candidate, print_fastest, short, time_in_turn
from benchmarks.fusion import CHAINS, COLUMNS, ROWS, Chain, operands
from solutions.fusion import launch
from solutions.fusion.expression import traced

THREADS = (64, 128, 256, 512)
ROUNDS, SECONDS = 5, 0.01
NAMES = ("gelu", "gelu_tanh", "bias_gelu", "add_relu")


def run(threads: int, text: str, given: tuple[torch.Tensor, ...]) -> None:
    """Compute an expression with so many threads a block."""
    launch.THREADS = threads
    launch.computed(text, given, 0)


def sweep(chain: Chain, dtype: torch.dtype) -> None:
    """Time the choices for one chain, and print them."""
    given = operands(chain, ROWS, COLUMNS, dtype, "cuda")
    text = str(traced(chain.theirs, len(given)))
    bytes_moved = (1 + chain.rows) * given[0].nbytes
    half = torch.empty(bytes_moved // 2, dtype=torch.uint8, device="cuda")
    functions: dict[str, Callable[[], object]] = {
        f"{threads} threads": partial(run, threads, text, given) for threads in THREADS
    }
    functions["torch.compile"] = partial(_peers.compiled(chain.theirs), *given)
    functions["copy"] = partial(torch.empty_like(half).copy_, half)
    todo = [
        Candidate(name, name, function, (), bytes_moved, short(dtype))
        for name, function in functions.items()
    ]
    times = time_in_turn(todo, ROUNDS, SECONDS)
    print(f"== {chain.name}, {short(dtype)}, {ROWS} x {COLUMNS}")
    print_fastest(times, ("copy", "torch.compile"))


def main() -> int:
    """Sweep the chains whose kernels do most, or little, for their bytes."""
    if kw.cuda.backend() != "gpu":
        print("no NVIDIA GPU: nothing was timed")
        return 0
    for dtype in (torch.float32, torch.bfloat16):
        for chain in CHAINS:
            if chain.name in NAMES:
                sweep(chain, dtype)
    return 0


if __name__ == "__main__":
    sys.exit(main())
