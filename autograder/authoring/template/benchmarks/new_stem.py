"""New title.

On a GPU every rung is right first, then timed against a copy in the same run::

    python -m benchmarks.new_stem                 measure and store
    python -m benchmarks.new_stem --check         and hold the floors
    python -m benchmarks.new_stem --only-correct  no timing

Candidates are timed in turn, and each is compared with the copy of its own round.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from benchmarks import _command, _peers
from benchmarks._candidates import Candidate
from benchmarks._sources import rung
from solutions import new_stem as family

ROUNDS = 9
SOURCES = Path(family.__file__).parent

# Lowest ratio to the copy that is no regression, by device: {"nvidia-h200": {"naive":
# 0.8}}. Tests want them as soon as a run is stored.
FLOORS: dict[str, dict[str, float]] = {}


def main() -> int:
    """Check, measure, store; return 0 if all is right and above its floor."""
    options = _command.command_line(__doc__).parse_args()
    return _command.run("new_stem", options, check_values, measured, FLOORS)


def check_values(device: str) -> None:
    """Hold every rung against torch."""
    for n in (0, 1, 257, 1009):
        x = torch.randn(n, device=device)
        torch.testing.assert_close(family.new_stem(x), x * x)
    print(f"right on {device}")


def measured(options: argparse.Namespace) -> _command.Measured:
    """Time every candidate."""
    rows = _peers.beside(list(candidates()), ROUNDS)
    yield rows, {"copy_gbps": round(_peers.copy_gbps(rows), 1)}


def candidates() -> Iterator[Candidate]:
    """Name everything that is timed; ``copy`` first, the rest is compared with it."""
    x = torch.randn(2**26, device="cuda")
    out, n = torch.empty_like(x), x.numel()
    moved = 2 * x.nbytes
    yield _peers.copy_of(x, "copy")
    naive = rung(SOURCES, "naive")[n // 256, 256]
    yield Candidate("naive", "one thread an element", naive, (x, out, n), moved)
    yield Candidate("torch", "torch.square", _torch_square, (x, out), moved)


def _torch_square(x: torch.Tensor, out: torch.Tensor) -> None:
    torch.square(x, out=out)


if __name__ == "__main__":
    sys.exit(main())
