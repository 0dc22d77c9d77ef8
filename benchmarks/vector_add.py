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
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import kernelwright as kw
from benchmarks import _command, _peers
from benchmarks._candidates import Candidate, short
from benchmarks._sources import rung
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


def main() -> int:
    """Check, measure, store; return 0 if all is right and above its floor."""
    options = _command.command_line(__doc__).parse_args()
    return _command.run("vector_add", options, check_values, measured, FLOORS)


def measured(options: argparse.Namespace) -> _command.Measured:
    """Time every candidate, and the memory's latency."""
    check_large()
    check_peers()
    todo = [replace(c, peers=("torch",)) for c in candidates()]
    rows = _peers.beside(todo, ROUNDS, 0.04, key="of_torch")
    copy_gbps = _peers.copy_gbps(rows)
    for row in rows:
        row["median_us"] = row["median_ms"] * 1e3
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    latency = latency_ns()
    # Blocks of one warp do so little that starting them is all there is to see.
    tiny = next(row for row in rows if row["name"] == "block_32")
    in_flight = copy_gbps * latency / sms / 1e3
    print(f"latency {latency:.0f} ns, {in_flight:.1f} KB in flight an SM")
    yield (
        rows,
        {
            "copy_gbps": round(copy_gbps, 1),
            "latency_ns": round(latency, 1),
            "in_flight_kb_per_sm": round(in_flight, 2),
            "blocks_per_us": round(tiny["n"] / 32 / tiny["median_us"], 1),
            "sms": sms,
        },
    )


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
    # As many bytes in all as an addition moves, so that both are equally long.
    half = torch.randn(3 * n // 2, device="cuda")
    yield replace(_peers.copy_of(half, "copy"), label="copy, torch", facts={"n": 0})
    yield row("torch", "torch.add", _torch_add, x, y, out)
    add_one = rung(SOURCES, "add_one")[n // 256, 256]
    one = row("add_one", "add one, one thread an element", add_one, x, out)
    yield replace(one, bytes_moved=2 * BYTES)
    guarded = rung(SOURCES, "guarded")
    launch = guarded[n // 256, 256]
    yield row("guarded", "guarded, one element a thread", launch, x, y, out, n)
    for threads in (32, 64, 128, 256, 512, 1024):
        launch = guarded[n // threads, threads]
        yield row(f"block_{threads}", str(threads), launch, x, y, out, n)
    yield from _strides(x, y, out)
    vectorized = rung(SOURCES, "vectorized")[n // 1024, 256]
    label = "float4, four elements a thread"
    yield row("vectorized", label, vectorized, x, y, out, n)
    yield row("any_dtype", "solutions.vector_add", _solution_add, x, y, out)
    yield row("saxpy_any_dtype", "solutions.saxpy", _solution_saxpy, x, y, out)
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        n = BYTES // dtype.itemsize
        a, b = (torch.randn(n, device="cuda").to(dtype) for _ in range(2))
        label = f"solutions.vector_add, {short(dtype)}"
        given = (a, b, torch.empty_like(a))
        yield row(f"add_{short(dtype)}", label, _solution_add, *given)
    yield from _other_languages(x, y)


def row(name: str, label: str, run: Callable[..., object], *given: Any) -> Candidate:
    """Name an addition of as many bytes as all of them; n is that of its tensors."""
    x = next(one for one in given if isinstance(one, torch.Tensor))
    facts = {"n": x.numel()}
    return Candidate(name, label, run, given, 3 * BYTES, short(x.dtype), facts=facts)


def _strides(
    x: torch.Tensor, y: torch.Tensor, out: torch.Tensor
) -> Iterator[Candidate]:
    """Name saxpy whose threads walk on: as it stands, undone, and on fewer blocks."""
    given = (1.75, x, y, out, x.numel())
    stride = rung(SOURCES, "grid_stride")
    yield row("grid_stride", "saxpy, grid stride", stride[8192, 256], *given)
    for name, label, text in _stride_variants():
        variant = kw.cuda.compile(text)["saxpy"][8192, 256]
        yield row(name, label, variant, *given)
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    packed = rung(SOURCES, "any_dtype", "packed_saxpy<float>")
    for each in (4, 8, 16, 32, 64, 128, 256):
        for name, label, kernel in (
            ("stride", "grid stride", stride),
            ("packed_stride", "16 bytes", packed),
        ):
            label = f"saxpy, {label}, {each} blocks an SM"
            yield row(f"{name}_{each}", label, kernel[each * sms, 256], *given)


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


def _other_languages(x: torch.Tensor, y: torch.Tensor) -> Iterator[Candidate]:
    import cupy

    from solutions.vector_add import cupy_add, triton_add

    yield row("triton", "Triton", triton_add.vector_add_triton, x, y)
    a, b = cupy.from_dlpack(x), cupy.from_dlpack(y)

    def on_torchs_stream(function: Callable[..., object]) -> Callable[[], None]:
        def run() -> None:
            stream = torch.cuda.current_stream().cuda_stream
            with cupy.cuda.ExternalStream(stream):
                function(a, b)

        return run

    facts = {"n": x.numel()}
    for name, label, function in (
        ("cupy_raw", "CuPy RawKernel", cupy_add.vector_add_raw),
        ("cupy_elementwise", "CuPy ElementwiseKernel", cupy_add.vector_add_elementwise),
    ):
        run = on_torchs_stream(function)
        yield Candidate(name, label, run, (), 3 * BYTES, facts=facts)


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
