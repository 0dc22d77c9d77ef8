"""Chapter 1 on a GPU: every rung right, then timed against a copy in the same run.

    python -m benchmarks.vector_add                 measure and store
    python -m benchmarks.vector_add --check         and hold against the floors
    python -m benchmarks.vector_add --only-correct  no timing; also without a GPU

Candidates are timed in turn, round after round, and each is compared with the copy
of its own round: a clock that drifts cannot favour one of them. All arrays are
268 MB (2^26 floats) or, in other dtypes, as many bytes: far past any L2.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import kernelwright as kw
from benchmarks._store import RESULTS, below_floor, slug, store
from solutions import vector_add as family

BYTES = 2**28
SIZES = (0, 1, 3, 31, 33, 255, 257, 1009, 2**20 + 7)
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
ROUNDS = 9
SOURCES = Path(family.__file__).parent

# Lowest ratio to the copy that is no regression, by device.
FLOORS: dict[str, dict[str, float]] = {
    "nvidia-h200": {
        "vectorized": 0.95,
        "any_dtype": 0.95,
        "saxpy_any_dtype": 0.95,
        "add_float16": 0.95,
        "add_bfloat16": 0.95,
        "add_float64": 0.95,
    }
}


@dataclass(frozen=True)
class Candidate:
    """One thing to time: what it is called, what it runs, what it must move."""

    name: str
    label: str
    run: Callable[..., object]
    arguments: tuple[Any, ...]
    bytes_moved: int
    dtype: str = "float32"
    n: int = 0


def main() -> int:
    """Check, measure, store; return 0 if all is right and above its floor."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--only-correct", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    on_gpu = torch.cuda.is_available()
    check_values("cuda" if on_gpu else "cpu")
    if options.only_correct:
        return 0
    if not on_gpu:
        print("no NVIDIA GPU: nothing was timed, nothing stored")
        return 0
    check_large()
    check_peers()
    rows, copy_gbps = measure(list(candidates()))
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    latency = latency_ns()
    # Blocks of one warp do so little that starting them is all there is to see.
    tiny = next(row for row in rows if row["name"] == "block_32")
    blocks_per_us = tiny["n"] / 32 / tiny["median_us"]
    in_flight = copy_gbps * latency / sms / 1e3
    print(f"latency {latency:.0f} ns, {in_flight:.1f} KB in flight an SM")
    path = store(
        "vector_add",
        rows,
        options.out,
        copy_gbps=round(copy_gbps, 1),
        latency_ns=round(latency, 1),
        in_flight_kb_per_sm=round(in_flight, 2),
        blocks_per_us=round(blocks_per_us, 1),
        sms=sms,
    )
    print(f"stored in {path}")
    if options.check or os.environ.get("CHECK") == "1":
        floors = FLOORS.get(slug(torch.cuda.get_device_name()))
        if floors is None:
            print("no floors are known for this device")
            return 0
        low = below_floor(rows, floors)
        print("\n".join(low) or "all figures are above their floors")
        return 1 if low else 0
    return 0


# --- right first ------------------------------------------------------------------


def check_values(device: str) -> None:
    """Hold every launcher against torch, over dtypes, lengths and alignments."""
    for dtype in DTYPES:
        for n in SIZES if device == "cuda" else SIZES[:-1]:
            x = torch.randn(n + 1, device=device).to(dtype)
            y = torch.randn(n + 1, device=device).to(dtype)
            for a, b in ((x[:n], y[:n]), (x[1:], y[1:])):
                expect(family.vector_add(a, b), a + b)
                expect(family.add_one(a), a + 1)
                expect_close(family.saxpy(1.75, a, b), a, b, 1.75)
    x, y = torch.randn(2, 1009, device=device)
    expect(family.vector_add(x, y, kernel="guarded"), x + y)
    expect(family.vector_add(x.clone(), y.clone(), kernel="vectorized"), x + y)
    expect_close(family.saxpy(2.5, x, y, kernel="grid_stride"), x, y, 2.5)
    print(f"right on {device}: {len(DTYPES)} dtypes, {len(SIZES)} lengths")


def check_large() -> None:
    """Go past 2^31 elements, where a 32-bit index wraps."""
    n = 2**31 + 2**20 + 5
    bits = torch.randint(-20_000, 20_000, (n,), dtype=torch.int16, device="cuda")
    x = bits.view(torch.float16).nan_to_num_(nan=1.0, posinf=2.0, neginf=3.0)
    y = x.flip(0)
    wanted = x + y
    assert torch.equal(family.vector_add(x, y), wanted)
    assert torch.equal(family.saxpy(1.0, x, y), wanted)
    del y, wanted
    assert torch.equal(family.add_one(x), x + 1)
    print(f"right for {n:,} elements")


def check_peers() -> None:
    """Hold Triton and CuPy against torch."""
    import cupy

    from solutions.vector_add import cupy_add, triton_add

    for n in SIZES:
        x, y = torch.randn(2, n, device="cuda")
        expect(triton_add.vector_add_triton(x, y), x + y)
        expect_close(triton_add.saxpy(1.75, x, y), x, y, 1.75)
        a, b = cupy.from_dlpack(x), cupy.from_dlpack(y)
        expect(torch.from_dlpack(cupy_add.vector_add_raw(a, b)), x + y)
        expect(torch.from_dlpack(cupy_add.vector_add_elementwise(a, b)), x + y)
    for dtype in DTYPES:
        x, y = torch.randn(2, 1009, device="cuda").to(dtype)
        expect(triton_add.vector_add(x, y), x + y)
        expect(triton_add.add_one(x), x + 1)
    print("right: Triton and CuPy")


def expect(got: torch.Tensor, wanted: torch.Tensor) -> None:
    """Demand the very same bits; NaN meets NaN."""
    torch.testing.assert_close(got, wanted, rtol=0, atol=0, equal_nan=True)


def expect_close(got: torch.Tensor, x: torch.Tensor, y: torch.Tensor, a: float) -> None:
    """Demand ``a * x + y`` to one rounding of its terms."""
    product, other = a * x.double(), y.double()
    bound = torch.finfo(got.dtype).eps * (product.abs() + other.abs())
    worst = (got.double() - product - other).abs() - bound
    assert bool((worst <= 0).all()), f"off by {worst.max():.3g} past the bound"


# --- then fast --------------------------------------------------------------------


def candidates() -> Iterator[Candidate]:
    """Name everything that is timed; ``copy`` first, the rest is compared with it."""
    n = BYTES // 4
    x, y = torch.randn(2, n, device="cuda")
    out = torch.empty_like(x)
    moved = 3 * BYTES
    # As many bytes in all as an addition moves, so that both are equally long.
    half = torch.randn(3 * n // 2, device="cuda")
    yield Candidate(
        "copy", "copy, torch", torch.Tensor.copy_, (torch.empty_like(half), half), moved
    )
    yield Candidate("torch", "torch.add", _torch_add, (x, y, out), moved, n=n)

    def rung(stem: str, kernel: str) -> kw.cuda.Kernel:
        return kw.cuda.compile((SOURCES / f"{stem}.cu").read_text())[kernel]

    def row(name: str, label: str, run: Callable[..., object], *args: Any) -> Candidate:
        return Candidate(name, label, run, args, moved, n=n)

    add_one = rung("add_one", "add_one")[n // 256, 256]
    yield Candidate(
        "add_one", "add one, one thread an element", add_one, (x, out), 2 * BYTES, n=n
    )
    guarded = rung("guarded", "vector_add")
    yield row(
        "guarded", "guarded, one element a thread", guarded[n // 256, 256], x, y, out, n
    )
    for threads in (32, 64, 128, 256, 512, 1024):
        yield row(
            f"block_{threads}",
            str(threads),
            guarded[n // threads, threads],
            x,
            y,
            out,
            n,
        )
    stride = rung("grid_stride", "saxpy")
    yield row(
        "grid_stride", "saxpy, grid stride", stride[8192, 256], 1.75, x, y, out, n
    )
    for name, label, text in _stride_variants():
        variant = kw.cuda.compile(text)["saxpy"][8192, 256]
        yield row(name, label, variant, 1.75, x, y, out, n)
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    packed = rung("any_dtype", "packed_saxpy<float>")
    for each in (4, 8, 16, 32, 64, 128, 256):
        yield row(
            f"stride_{each}",
            f"saxpy, grid stride, {each} blocks an SM",
            stride[each * sms, 256],
            *(1.75, x, y, out, n),
        )
        yield row(
            f"packed_stride_{each}",
            f"saxpy, 16 bytes, {each} blocks an SM",
            packed[each * sms, 256],
            *(1.75, x, y, out, n),
        )
    vectorized = rung("vectorized", "vector_add_vec4")
    yield row(
        "vectorized",
        "float4, four elements a thread",
        vectorized[n // 1024, 256],
        *(x, y, out, n),
    )
    yield row("any_dtype", "solutions.vector_add", _solution_add, x, y, out)
    yield row("saxpy_any_dtype", "solutions.saxpy", _solution_saxpy, x, y, out)
    yield from _other_dtypes()
    yield from _other_languages(x, y, moved, n)


def _stride_variants() -> Iterator[tuple[str, str, str]]:
    """Undo, one at a time, what lets the compiler overlap the rounds of the loop."""
    text = (SOURCES / "grid_stride.cu").read_text()
    inline = text.replace("i += stride", "i += gridDim.x * blockDim.x")
    unrestricted = text.replace("__restrict__ ", "")
    assert text not in (inline, unrestricted)
    yield "stride_inline", "saxpy, stride computed in the loop", inline
    yield "stride_unrestricted", "saxpy, pointers not restricted", unrestricted


def _torch_add(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> None:
    torch.add(x, y, out=out)


def _solution_add(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> None:
    family.vector_add(x, y, out=out)


def _solution_saxpy(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> None:
    family.saxpy(1.75, x, y, out=out)


def _other_dtypes() -> Iterator[Candidate]:
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        n = BYTES // dtype.itemsize
        x, y = (torch.randn(n, device="cuda").to(dtype) for _ in range(2))
        name = str(dtype).removeprefix("torch.")
        yield Candidate(
            f"add_{name}",
            f"solutions.vector_add, {name}",
            _solution_add,
            (x, y, torch.empty_like(x)),
            3 * BYTES,
            name,
            n,
        )


def _other_languages(
    x: torch.Tensor, y: torch.Tensor, moved: int, n: int
) -> Iterator[Candidate]:
    import cupy

    from solutions.vector_add import cupy_add, triton_add

    yield Candidate(
        "triton", "Triton", triton_add.vector_add_triton, (x, y), moved, n=n
    )
    a, b = cupy.from_dlpack(x), cupy.from_dlpack(y)

    def on_torchs_stream(function: Callable[..., object]) -> Callable[[], None]:
        def run() -> None:
            stream = torch.cuda.current_stream().cuda_stream
            with cupy.cuda.ExternalStream(stream):
                function(a, b)

        return run

    yield Candidate(
        "cupy_raw",
        "CuPy RawKernel",
        on_torchs_stream(cupy_add.vector_add_raw),
        (),
        moved,
        n=n,
    )
    yield Candidate(
        "cupy_elementwise",
        "CuPy ElementwiseKernel",
        on_torchs_stream(cupy_add.vector_add_elementwise),
        (),
        moved,
        n=n,
    )


def measure(todo: list[Candidate]) -> tuple[list[dict[str, Any]], float]:
    """Time all candidates in rounds; return a row each, and the copy's GB/s."""
    times: dict[str, list[float]] = {c.name: [] for c in todo}
    for _ in range(ROUNDS):
        for c in todo:
            timing = kw.bench(c.run, *c.arguments, seconds=0.04, device="cuda")
            times[c.name].append(timing.median_ms)
    by_name = {c.name: c for c in todo}
    rate = {
        name: [by_name[name].bytes_moved / ms / 1e6 for ms in each]
        for name, each in times.items()
    }
    rows = []
    for c in todo:
        ratios = [r / k for r, k in zip(rate[c.name], rate["copy"], strict=True)]
        to_torch = [r / k for r, k in zip(rate[c.name], rate["torch"], strict=True)]
        median = statistics.median(times[c.name])
        rows.append(
            {
                "name": c.name,
                "label": c.label,
                "n": c.n,
                "dtype": c.dtype,
                "bytes": c.bytes_moved,
                "median_ms": median,
                "median_us": median * 1e3,
                "low_ms": min(times[c.name]),
                "high_ms": max(times[c.name]),
                "gbps": statistics.median(rate[c.name]),
                "ratio": statistics.median(ratios),
                "of_torch": statistics.median(to_torch),
            }
        )
        print(
            f"{c.label:<40} {median:8.4f} ms {rows[-1]['gbps']:8.1f} GB/s "
            f"{rows[-1]['ratio']:6.1%} of copy"
        )
    return rows, statistics.median(rate["copy"])


_CHASE = """
__global__ void chase(const int* next, int* out, int steps) {
    int at = out[0];
    for (int step = 0; step < steps; ++step) {
        at = next[at];
    }
    out[0] = at;
}
"""


def latency_ns() -> float:
    """Measure one load from memory: a single thread follows a chain of addresses.

    The chain visits 2^22 places of 512 bytes each in random order, 2 GB in all, and
    each launch goes on where the last one stopped: no step finds its place in a
    cache.
    """
    places, apart, steps = 2**22, 128, 2**15
    order = torch.randperm(places, device="cuda")
    following = torch.zeros(places * apart, dtype=torch.int32, device="cuda")
    following[order * apart] = (order.roll(-1) * apart).int()
    out = torch.zeros(1, dtype=torch.int32, device="cuda")
    chase = kw.cuda.compile(_CHASE)["chase"]
    timing = kw.bench(
        lambda: chase[1, 1](following, out, steps), samples=9, device="cuda"
    )
    return timing.median_ms * 1e6 / steps


if __name__ == "__main__":
    sys.exit(main())
