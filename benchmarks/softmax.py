"""Chapter 8 on a GPU: every kernel right, then timed beside eager and torch.compile.

    python -m benchmarks.softmax                 measure and store
    python -m benchmarks.softmax --check         and hold against the floors
    python -m benchmarks.softmax --only-correct  no timing; also without a GPU

Each candidate is compared with a copy of as many bytes in its own round, and ours with
torch's own (``_peers``). Bytes are what must move: x read once and out written once
(backward: y and its gradient read, x's written), however often a kernel reads.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import triton

import kernelwright as kw
from benchmarks import _command, _peers
from benchmarks._candidates import Candidate, short
from benchmarks._sources import rung
from benchmarks._sweep import Sweep, Sweeps
from solutions.softmax import launch, softmax
from solutions.softmax.fused import softmax_triton
from solutions.softmax.long_rows import softmax_long_rows

SHAPES = (
    (32768, 1024), (16384, 8192), (4096, 65_536), (2048, 131_072), (1024, 262_144),
)  # fmt: skip
BACKWARD_SHAPES = ((16384, 8192), (4096, 65_536))
DTYPES = (torch.bfloat16, torch.float32)
RUNG_SHAPES = ((16384, 8192), (4096, 65_536))
ROUNDS = 5
SOURCES = Path(launch.__file__).parent
VALUE_THREES = (
    (5, 7, 1), (40, 1024, 1), (9, 1001, 1), (3, 8192, 1), (2, 32_768, 1),
    (2, 40_001, 1), (2, 40, 18), (2, 1500, 3),
)  # fmt: skip
# Lowest ratio to the better peer that is no regression, by device: what the course
# asks for.
FLOORS: dict[str, dict[str, float]] = {
    "nvidia-h200": {
        f"softmax_bfloat16_{rows}x{columns}": 1.5
        for rows, columns in ((16384, 8192), (4096, 65_536), (1024, 262_144))
    }
}


def main() -> int:
    """Check, measure, store; return 0 if all is right and above its floor."""
    options = _command.command_line(__doc__).parse_args()
    return _command.run("softmax", options, check_values, measured, FLOORS, "of_peer")


def measured(options: argparse.Namespace) -> _command.Measured:
    """Time every candidate."""
    rows = _peers.beside(list(candidates()), ROUNDS)
    _peers.compare_with_torch(rows)
    yield rows, {"copy_gbps": round(_peers.copy_gbps(rows), 1)}


# --- right first ------------------------------------------------------------------


def check_values(device: str) -> None:
    """Hold the kernels' values and gradients against float64, and the rungs' values.

    Without a GPU the kernels are interpreted, and bfloat16 is then wrong: it is left
    out. So is float64, of which nothing here is more exact; the tests hold it.
    """
    worst = 0.0
    narrow = [torch.bfloat16] if device == "cuda" else []
    for dtype in (torch.float16, torch.float32, *narrow):
        for shape in VALUE_THREES:
            worst = max(worst, worst_error(shape, dtype, device))
    assert worst < 4, worst
    x = 5 * torch.randn(3, 5000, device=device)
    right = torch.softmax(x.double(), 1)
    for name, run in rungs_of(x).items():
        off = float((run().double() / right - 1).abs().max())
        assert off < 1e-5, (name, off)
    print(f"right on {device}: off by {worst:.1f} eps of the largest value at most")


def worst_error(shape: tuple[int, int, int], dtype: torch.dtype, device: str) -> float:
    """Return the largest error of output and gradient, in eps of the largest value."""
    generator = torch.Generator().manual_seed(sum(shape))
    x, grad = (
        torch.randn(shape, generator=generator).to(device, dtype) for _ in range(2)
    )
    y, slope = torch.empty_like(x), torch.empty_like(x)
    launch.forward_into(x, y)
    launch.backward_into(y, grad, slope)
    v, g = y.double(), grad.double()
    pairs = (
        (y, torch.softmax(x.double(), 1)),
        (slope, v * (g - (v * g).sum(1, keepdim=True))),
    )
    errors = [float((a - b).abs().max() / b.abs().max()) for a, b in pairs]
    return max(errors) / torch.finfo(dtype).eps


# --- then fast --------------------------------------------------------------------


def _eager(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


def _formula(x: torch.Tensor) -> torch.Tensor:
    """Write softmax out, an operation a kernel: the *standard* of the sources."""
    weight = torch.exp(x - x.amax(-1, keepdim=True))
    return weight / weight.sum(-1, keepdim=True)


def versions() -> _peers.Versions:
    """Name ours, the peers, and the formula written out."""
    return {
        "": ("`softmax`", softmax),
        **_peers.torchs(_eager),
        "_formula": ("torch eager, the formula written out", _formula),
    }


def candidates() -> Iterator[Candidate]:
    """Name everything whose figures are stored; the copies first."""
    yield from copies()
    yield from rungs()
    for (rows, columns), dtype in itertools.product(SHAPES, DTYPES):
        yield from forwards(rows, columns, dtype)
    for (rows, columns), dtype in itertools.product(BACKWARD_SHAPES, DTYPES):
        yield from backwards(rows, columns, dtype)


def copies() -> Iterator[Candidate]:
    """Name a copy of each number of bytes, and of the size that others quote."""
    sizes = {
        rows * columns * dtype.itemsize
        for (rows, columns), dtype in itertools.product(SHAPES, DTYPES)
    }
    for size in sorted(sizes | {_peers.QUOTED_BYTES // 2}):
        x = torch.randn(size // 4, device="cuda")
        yield _peers.copy_of(x, f"copy_{2 * size}")


def forwards(rows: int, columns: int, dtype: torch.dtype) -> Iterator[Candidate]:
    """Name the forward pass at one size, ours and the peers'."""
    x = torch.randn(rows, columns, device="cuda").to(dtype)
    kind = short(dtype)
    return _peers.each(
        versions(), f"softmax_{kind}_{rows}x{columns}",
        f"{{}}, {rows} x {columns} {kind}", (x,), 2 * x.nbytes, kind,
    )  # fmt: skip


def backwards(rows: int, columns: int, dtype: torch.dtype) -> Iterator[Candidate]:
    """Name the backward pass, through autograd for all of them."""
    every = dict(versions())
    if columns > 8192:  # its graph keeps half a dozen arrays: not of a gigabyte each
        del every["_formula"]

    def drawn() -> _peers.Graph:
        x = torch.randn(rows, columns, device="cuda").to(dtype).requires_grad_()
        return (x,), torch.randn_like(x)

    kind = short(dtype)
    return _peers.each(
        _peers.backwards(every, drawn), f"softmax_backward_{kind}_{rows}x{columns}",
        f"{{}}, backward, {rows} x {columns} {kind}", (),
        3 * rows * columns * dtype.itemsize, kind,
    )  # fmt: skip


_RUNG_LABELS = {
    "naive": "as the formula stands, no maximum",
    "safe": "three sweeps",
    "online": "online: one sweep and one to write",
    "fused": "Triton, the row in registers",
    "long_rows": "Triton, rows in pieces",
}


def rungs_of(x: torch.Tensor) -> dict[str, Callable[[], torch.Tensor]]:
    """Return the launch of each rung that takes x (rows, columns), float32."""
    rows, columns = x.shape
    out = torch.empty_like(x)
    runs: dict[str, Callable[[], torch.Tensor]] = {}
    for name in ("naive", "safe", "online"):
        kernel = rung(SOURCES, name)

        def run(kernel: kw.cuda.Kernel = kernel) -> torch.Tensor:
            kernel[rows, 256](x, out, columns)
            return out

        runs[name] = run
    if columns <= 16_384:
        runs["fused"] = lambda: softmax_triton(x)
    runs["long_rows"] = lambda: softmax_long_rows(x)
    return runs


def rungs() -> Iterator[Candidate]:
    """Name the chapter's own kernels, on float32."""
    for rows, columns in RUNG_SHAPES:
        x = torch.randn(rows, columns, device="cuda")
        for name, run in rungs_of(x).items():
            tail = "" if columns == RUNG_SHAPES[0][1] else f"_{columns}"
            label = f"{_RUNG_LABELS[name]}, {rows} x {columns}"
            yield Candidate(f"rung_{name}{tail}", label, run, (), 2 * x.nbytes)


# --- other settings of the launch ---------------------------------------------------

SWEPT = ((16384, 8192), (4096, 65_536), (1024, 262_144), (256, 1_048_576))
PIECES, WARPS, REGISTERS = (4096, 8192, 16_384, 32_768), (4, 8, 16, 32), (None, 56)
MOST_PIECES = 128  # fewer than an H200's SMs: all programs of a row must have one
A_THREAD, A_PROGRAM = 128, 48 * 1024  # widened numbers that registers hold


def settings(columns: int, arrays: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Give each choice that registers hold, as names of the launch and their values.

    Args:
        columns: of a row.
        arrays: whose numbers a program keeps: 1 forward, 2 backward.
    """
    plan = launch.rows_plan
    for warps in WARPS:
        fits = min(A_PROGRAM, A_THREAD * 32 * warps) // arrays
        block, rows, _ = plan(columns)
        if block * rows <= fits:
            whole = {
                "REGISTERS": 1 << 40,
                "rows_plan": lambda n, w=warps: (*plan(n)[:2], w),
            }
            yield f"whole rows, {warps} warps", whole
        for piece in (
            p for p in PIECES if p <= min(fits, triton.next_power_of_2(columns))
        ):
            for most in REGISTERS if triton.cdiv(columns, piece) <= MOST_PIECES else ():
                crews = dict.fromkeys((2, 4, 8), launch.Crew(warps, most))
                name = f"pieces of {piece}, {warps} warps, {most or 'any'} registers"
                together = {
                    "MOST_TOGETHER": MOST_PIECES,
                    "FORWARD": crews,
                    "BACKWARD": crews,
                }
                yield name, {"REGISTERS": 0, "PIECE": piece, **together}
            if warps == 8:  # as the three launches have it
                apart = {"REGISTERS": 0, "PIECE": piece, "MOST_TOGETHER": 0}
                yield f"pieces of {piece}, launch by launch", apart


def sweep(way: str, dtype: torch.dtype, shape: tuple[int, int]) -> Sweep:
    """Name the settings for one shape and direction."""
    x = torch.randn(shape, device="cuda").to(dtype)
    y = torch.softmax(x, 1)
    given, right = (x,), torch.softmax(x.double(), 1)
    if way == "backward":
        given, v, g = (y, x), y.double(), x.double()
        right = v * (g - (v * g).sum(1, keepdim=True))
    out = torch.empty_like(x)
    into = launch.forward_into if way == "forward" else launch.backward_into
    every = {"today": {}, **dict(settings(shape[1], len(given)))}
    today = {name: getattr(launch, name) for one in every.values() for name in one}
    moved = (1 + len(given)) * x.nbytes

    def run(name: str) -> torch.Tensor:
        vars(launch).update(today | every[name])
        into(*(t.unsqueeze(-1) for t in (*given, out)))
        return out

    found = [Candidate(n, n, run, (n,), moved, short(dtype)) for n in every]
    copied = torch.randint(0, 256, (moved // 2,), dtype=torch.uint8, device="cuda")
    title = f"{way} {short(dtype)} {shape[0]} x {shape[1]}"
    return Sweep(title, found, [_peers.copy_of(copied, "copy")], right, eps=16)


def sweeps() -> Sweeps:
    """Sweep the launch on long rows, both ways."""
    every = itertools.product(("forward", "backward"), DTYPES, SWEPT)
    return [partial(sweep, *one) for one in every]


if __name__ == "__main__":
    sys.exit(main())
