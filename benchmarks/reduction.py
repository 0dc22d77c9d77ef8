"""Chapter 4 on a GPU: every rung right, then timed beside torch.sum and CUB.

    python -m benchmarks.reduction                 measure and store
    python -m benchmarks.reduction --check         and hold against the floors
    python -m benchmarks.reduction --only-correct  no timing; also without a GPU

The ladder sums 2^30 floats, all passes of a rung together. ``ratio`` is the bandwidth
over that of a copy in the same round, ``peer`` the better library's time over the row's
own: a sum only reads, so both may pass 1.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import kernelwright as kw
from benchmarks import _command, _peers
from benchmarks._candidates import Candidate, Row, short
from benchmarks._sources import rung
from solutions import reduction as family

SOURCES = Path(family.__file__).parent
N = 2**30
MASKED = "(t & (2 * stride - 1)) == 0"
ATOMIC_N = 2**26  # one address takes so long that this is enough
ROWS, COLUMNS = 16384, 8192
ROUNDS = 5
GRID, THREADS = 1056, 256  # eight blocks an SM of an H200: as many as fit
SHAPES = (
    ((0, 3), 0),
    ((5, 0), 1),
    ((1,), 0),
    ((31, 33), 0),
    ((31, 33), 1),
    ((7, 100_003), 1),
    ((100_003, 7), 0),
    ((3, 1000, 130), 1),
    ((40_000, 9), 1),
    ((70_000, 5, 3), 1),
)
# Lowest figures that are no regression, by device.
FLOORS: dict[str, dict[str, float]] = {"nvidia-h200": {"sum_all_float32": 0.98}}


def main() -> int:
    """Check, measure, store; return 0 if all is right and above its floor."""
    parser = _command.command_line(__doc__)
    parser.add_argument("--only", default="", help="names that hold this; not stored")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    return _command.run("reduction", options, check_values, measured, FLOORS, "peer")


def measured(options: argparse.Namespace) -> _command.Measured:
    """Time every candidate, or some; measure how exact long sums are."""
    todo = [c for c in candidates() if options.only in c.name or c.name == "copy"]
    rows = _peers.beside(todo, options.rounds)
    for row in rows:
        if row["name"] == "atomic":
            row["ns_each"] = row["median_ms"] * 1e6 / ATOMIC_N
    if not options.only:
        facts = {"copy_gbps": round(_peers.copy_gbps(rows), 1)}
        yield [*rows, *accuracy()], facts


# --- right first ------------------------------------------------------------------


def check_values(device: str) -> None:
    """Hold every kernel against float64, over shapes, dimensions and dtypes."""
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        eps = torch.finfo(dtype).eps
        for shape, dim in SHAPES:
            x = torch.randn(shape, device=device).to(dtype)
            wide = x.double()
            for got, wanted in (
                (family.sum_squared(x, dim), wide.square().sum(dim)),
                (family.mean_abs(x, dim), wide.abs().mean(dim)),
            ):
                torch.testing.assert_close(
                    got.double(), wanted, rtol=4 * eps, atol=0, equal_nan=True
                )
            far = (family.sum_all(x).double() - wide.sum()).abs()
            assert far <= 4 * eps * max(1.0, float(wide.abs().sum())), (shape, dtype)
    for n in (5003, 300_000):
        x = torch.randn(n, device=device)
        exact = x.double().sum().item()
        for name, run in rungs().items():
            found = float(run(x))
            assert abs(found - exact) < 1e-6 * n**0.5 * 60, (name, found, exact)
    print(f"right on {device}: {len(SHAPES)} shapes, {len(rungs())} rungs")


def accuracy() -> list[Row]:
    """Say how far sums of 2^24 uniform floats are from the exact one."""
    x = torch.rand(2**24, generator=torch.Generator().manual_seed(4))
    exact, on_gpu = x.double().sum().item(), x.cuda()
    # NumPy's running sum keeps fp32; torch's on the CPU does not.
    loop = float(np.add.accumulate(x.numpy())[-1])
    found = {
        "loop": ("one after another, on the CPU", loop),
        "atomics": ("atomics", float(rungs()["atomic"](on_gpu))),
        "torch": ("torch.sum", float(on_gpu.sum())),
        "sum_all": ("solutions.sum_all", float(family.sum_all(on_gpu))),
    }
    rows: list[Row] = [
        {
            "name": f"accuracy_{name}",
            "label": label,
            "relative_error": abs(value - exact) / exact,
        }
        for name, (label, value) in found.items()
    ]
    for row in rows:
        print(f"{row['label']:<32} off by {row['relative_error']:.1e}")
    return rows


# --- the ladder -------------------------------------------------------------------

LABELS = {
    "atomic": "an atomic an element",
    "interleaved_modulo": "tree, lanes scattered, with %",
    "interleaved": "tree, lanes scattered",
    "sequential": "tree, lanes side by side",
    "shuffle": "shuffles, a warp",
    "in_flight_1": "a grid that stays, 1 load",
    "in_flight_2": "2 loads on their way",
    "in_flight_4": "4 loads",
    "in_flight_8": "8 loads",
    "single_pass": "one launch, float4",
}
Rung = Callable[[torch.Tensor], torch.Tensor]


@cache
def compiled(stem: str, expression: str) -> kw.cuda.Kernel:
    """Compile a kernel of the ladder."""
    return rung(SOURCES, stem, expression)


def rungs() -> dict[str, Rung]:
    """Return every rung of the ladder as a function from n floats to their sum."""
    found: dict[str, Rung] = {"atomic": _by_atomics}
    for stem, name, width in (
        ("interleaved", "tree_interleaved", 256),
        ("sequential", "block_sum", 256),
        ("shuffle", "warp_sum", 32),
    ):
        found[stem] = partial(_again_and_again, compiled(stem, name), width)
    # What the test for a multiple costs where it is written as one.
    text = (SOURCES / "interleaved.cu").read_text()
    assert MASKED in text
    modulo = kw.cuda.compile(text.replace(MASKED, "t % (2 * stride) == 0"))
    found["interleaved_modulo"] = partial(
        _again_and_again, modulo["tree_interleaved"], 256
    )
    for loads in (1, 2, 4, 8):
        found[f"in_flight_{loads}"] = partial(_in_flight, loads)
    found["single_pass"] = _in_one_pass
    return found


def _by_atomics(x: torch.Tensor) -> torch.Tensor:
    out = x.new_zeros(1)
    n = x.numel()
    compiled("atomic", "sum_atomic")[kw.cdiv(n, THREADS), THREADS](x, out, n)
    return out


def _again_and_again(
    kernel: kw.cuda.Kernel, width: int, x: torch.Tensor
) -> torch.Tensor:
    """Launch until one sum is left: of each ``width`` elements a launch makes one."""
    n = x.numel()
    while True:
        blocks = kw.cdiv(n, THREADS)
        out = x.new_empty(blocks * THREADS // width)
        kernel[blocks, THREADS](x, out, n)
        x, n = out, kw.cdiv(n, width)
        if n == 1:
            return x[:1]


def _in_flight(loads: int, x: torch.Tensor) -> torch.Tensor:
    kernel = compiled("in_flight", f"sum_in_flight<{loads}>")
    warps = x.new_empty(GRID * THREADS // 32)
    kernel[GRID, THREADS](x, warps, x.numel())
    few = x.new_empty(32)
    compiled("in_flight", "sum_in_flight<1>")[1, 1024](warps, few, warps.numel())
    return _again_and_again(compiled("shuffle", "warp_sum"), 32, few)


def _in_one_pass(x: torch.Tensor) -> torch.Tensor:
    out = x.new_empty(1)
    compiled("single_pass", "sum_all")[GRID, THREADS](x, out, x.numel())
    return out


# --- then fast --------------------------------------------------------------------


def candidates() -> Iterator[Candidate]:
    """Name everything whose figures are stored; the copy first."""
    x = torch.randn(N, device="cuda")
    half = x[: N // 2]
    yield Candidate(
        "copy", "copy, torch", torch.Tensor.copy_, (half, x[N // 2 :]), x.nbytes
    )
    peers = ("torch_sum", "cub_sum")
    for name, run in rungs().items():
        few = x[:ATOMIC_N] if name == "atomic" else x
        label = LABELS.get(name, name)
        yield Candidate(name, label, run, (few,), few.nbytes, peers=peers)
    name, label = "sum_all_float32", "solutions.sum_all"
    yield Candidate(name, label, family.sum_all, (x,), x.nbytes, peers=peers)
    for name, label, run in (
        ("torch_sum", "torch.sum", torch.sum),
        ("cub_sum", "CUB, through CuPy", cub_sum()),
    ):
        yield Candidate(name, label, run, (x,), x.nbytes, peers=peers)
    for dtype in (torch.bfloat16, torch.float64):
        some = x[: N // 4].to(dtype)
        name = short(dtype)
        for ours, label, run, them in (
            ("sum_all", "solutions.sum_all", family.sum_all, (f"torch_sum_{name}",)),
            ("torch_sum", "torch.sum", torch.sum, ()),
        ):
            yield Candidate(
                f"{ours}_{name}", f"{label}, {name}", run, (some,), some.nbytes, name,
                peers=them,
            )  # fmt: skip
    del x, half
    yield from _kernels()
    yield from _along()


def cub_sum() -> Callable[[torch.Tensor], object]:
    """Return CUB's sum, or CuPy's own where CUB is not there: a run says which."""
    import cupy
    from cupy._core import _accelerator

    _accelerator.set_reduction_accelerators(["cub"])

    def run(x: torch.Tensor) -> object:
        with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
            return cupy.from_dlpack(x).sum()

    return run


def _kernels() -> Iterator[Candidate]:
    """Name the exercises along one dimension."""
    x = torch.randn(ROWS, COLUMNS, device="cuda")
    yield Candidate(
        "rows", "sum_squared, rows.cu", compiled("rows", "sum_squared")[ROWS, THREADS],
        (x, x.new_empty(ROWS), COLUMNS), x.nbytes,
    )  # fmt: skip
    text = (SOURCES / "rows.cu").read_text()
    first, last = text.index("    for (int c"), text.index("    for (int offset")
    plain = kw.cuda.compile(text[:first] + PLAIN_LOOP + text[last:])["sum_squared"]
    yield Candidate(
        "rows_plain",
        "sum_squared, a plain loop",
        plain[ROWS, THREADS],
        (x, x.new_empty(ROWS), COLUMNS),
        x.nbytes,
    )
    yield Candidate(
        "columns", "mean_abs, columns.cu",
        compiled("columns", "mean_abs")[COLUMNS // 32, (32, 32)],
        (x, x.new_empty(COLUMNS), ROWS, COLUMNS), x.nbytes,
    )  # fmt: skip


def _torch_squares(x: torch.Tensor, dim: int) -> torch.Tensor:
    return x.square().sum(dim)


def _torch_magnitudes(x: torch.Tensor, dim: int) -> torch.Tensor:
    return x.abs().mean(dim)


# What one writes first: the compiler does not ask ahead by itself.
PLAIN_LOOP = """
    for (int c = threadIdx.x; c < columns; c += blockDim.x) {
        sum += row[c] * row[c];
    }
"""
_FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "sum_squared": (family.sum_squared, _torch_squares),
    "mean_abs": (family.mean_abs, _torch_magnitudes),
}
_OPERATIONS = {"sum_squared": "Squares", "mean_abs": "Magnitudes"}


def _along() -> Iterator[Candidate]:
    for dtype in (torch.float32, torch.bfloat16):
        for shape, dim in (
            ((ROWS, COLUMNS), 1),
            ((ROWS, COLUMNS), 0),
            ((32768, 1024), 1),
            ((ROWS - 1, COLUMNS - 1), 1),
            ((2**22, 32), 1),
        ):
            x = torch.randn(shape, device="cuda").to(dtype)
            for function in _FUNCTIONS:
                yield from _one_dim(function, x, dim)
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.randn(ROWS, COLUMNS, device="cuda").to(dtype)
        grad = torch.randn(ROWS, 1, device="cuda").to(dtype)
        kind = short(dtype)
        for function, operation in _OPERATIONS.items():
            yield Candidate(
                f"{function}_backward_{kind}",
                f"{function} backward, {kind}",
                family._slopes,
                (x, grad, operation, (1,)),
                2 * x.nbytes,
                kind,
            )


def _one_dim(function: str, x: torch.Tensor, dim: int) -> Iterator[Candidate]:
    """Name ours, torch's eager one and, for the large shape, the compiled one."""
    ours, theirs = _FUNCTIONS[function]
    kind, (rows, columns) = short(x.dtype), x.shape
    where = f"{rows} x {columns}, dim {dim}, {kind}"
    name = f"{function}_{kind}_{rows}_{columns}_{dim}"
    them = {f"eager_{name}": theirs}
    if (rows, columns) == (ROWS, COLUMNS):
        them[f"compile_{name}"] = _peers.compiled(theirs)
    label = f"{function}, {where}"
    given = (x, dim), x.nbytes, kind
    yield Candidate(name, label, ours, *given, peers=tuple(them))
    for peer, run in them.items():
        label = f"{peer.split('_')[0]}, {function}, {where}"
        yield Candidate(peer, label, run, *given)


if __name__ == "__main__":
    sys.exit(main())
