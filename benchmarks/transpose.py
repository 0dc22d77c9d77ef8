"""Chapter 2 on a GPU: every rung right, then timed against a copy in the same run.

    python -m benchmarks.transpose                 measure and store
    python -m benchmarks.transpose --check         and hold against the floors
    python -m benchmarks.transpose --sweep         first try every plan of any_size.cu
    python -m benchmarks.transpose --only-correct  no timing; also without a GPU

Matrices are 16384 x 8192 unless a row says otherwise. Candidates are timed in turn,
round after round, and each is compared with a copy of as many bytes in its own
round: a clock that drifts cannot favour one of them.
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
from autograder.authoring.regions import read_region
from benchmarks._store import RESULTS, below_floor, slug, store
from solutions import transpose as family

ROWS, COLUMNS = 16384, 8192
SHAPES = (
    (0, 3),
    (1, 1),
    (31, 33),
    (64, 64),
    (257, 1009),
    (128, 4096),
    (3, 40, 72),
    (1000, 8),
    (16, 520),
    (5, 7, 9, 11),
)
DTYPES = (torch.int8, torch.bfloat16, torch.float32, torch.float64)
ROUNDS, SWEEP_ROUNDS = 7, 3
FIELDS = 8
SOURCES = Path(family.__file__).parent
ANSWERS = SOURCES.parents[1] / "autograder" / "answers" / "transpose"

# Lowest ratio to the copy that is no regression, by device.
FLOORS: dict[str, dict[str, float]] = {
    "nvidia-h200": {"auto_float32": 0.90, "auto_bfloat16": 0.90}
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


def main() -> int:
    """Check, measure, store; return 0 if all is right and above its floor."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--sweep", action="store_true")
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
    if options.sweep:
        for dtype in (torch.bfloat16, torch.float32):
            print(f"== plans, {dtype}")
            rows, _ = measure(list(plans(dtype)), SWEEP_ROUNDS, quiet=True)
            for row in sorted(rows, key=lambda row: -row["ratio"]):
                print(f"{row['ratio']:7.1%} {row['gbps']:8.0f} GB/s  {row['label']}")
    rows, copy_gbps = measure(list(candidates()), ROUNDS)
    path = store("transpose", rows, options.out, copy_gbps=round(copy_gbps, 1))
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
    """Hold every kernel against torch, over element sizes, shapes and batches."""
    for dtype in DTYPES:
        for shape in SHAPES:
            x = torch.randint(-100, 100, shape, device=device).to(dtype)
            expect(family.transpose(x), x)
            expect(family.transpose(x, kernel="any"), x)
            if x.numel() and family.packs_fit(x, x.clone()):
                expect(family.transpose(x, kernel="registers"), x)
                expect(family.transpose(x, kernel="staged"), x)
    x = torch.randn(132, 68, device=device)
    for kernel in ("naive", "tiled", "padded", "swizzled"):
        expect(family.transpose(x, kernel=kernel), x)
    check_particles(device)
    print(f"right on {device}: {len(DTYPES)} dtypes, {len(SHAPES)} shapes")


def check_particles(device: str) -> None:
    """Hold both texts of the detective against torch."""
    n = 1009
    aos = torch.randn(n, FIELDS, device=device)
    soa = torch.empty(FIELDS, n, device=device)
    for solved in (False, True):
        soa.zero_()
        particles_kernel(solved)[kw.cdiv(n, 256), 256](aos, soa, n)
        expect(soa, aos)


def check_large() -> None:
    """Go past 2^31 elements, where a 32-bit index wraps."""
    for shape in ((2**16 + 8, 2**15 + 16), (2**16 + 1, 2**15 + 1)):
        x = torch.randint(-100, 100, shape, dtype=torch.int8, device="cuda")
        expect(family.transpose(x), x)
        print(f"right for {x.numel():,} elements")


def expect(got: torch.Tensor, x: torch.Tensor) -> None:
    """Demand the very bits of ``x.mT``, in memory of their own."""
    assert got.is_contiguous() and got.shape == x.mT.shape
    assert torch.equal(got, x.mT), f"{tuple(x.shape)}, {x.dtype}"


# --- then fast --------------------------------------------------------------------


def copies() -> Iterator[Candidate]:
    """Name the copies that all else is compared with, one for each size."""
    for dtype in (torch.int8, torch.bfloat16, torch.float32, torch.float64):
        x = torch.zeros(ROWS, COLUMNS, dtype=dtype, device="cuda")
        yield Candidate(
            f"copy_{x.nbytes}",
            f"copy, torch, {x.nbytes / 2**20:.0f} MiB",
            torch.Tensor.copy_,
            (torch.empty_like(x), x),
            2 * x.nbytes,
            short(dtype),
        )


def plans(dtype: torch.dtype) -> Iterator[Candidate]:
    """Name every plan that ``any_size.cu`` could be launched by."""
    yield from copies()
    x, out = matrices(dtype)
    bits = torch.int16 if dtype.itemsize == 2 else torch.int32
    x, out = x.view(bits), out.view(bits)
    orders = (True, False)
    every = [family.staged_plan(side, down=d) for side in (8, 16) for d in orders]
    every += [
        family.registers_plan(lane_rows, *warps, down=down)
        for lane_rows in (2, 4, 8)
        for warps in ((1, 2), (2, 1), (1, 4), (2, 2), (4, 1), (2, 4), (4, 2))
        for down in orders
    ]
    for plan in every:
        label = f"{plan.expression} {'down' if plan.down else 'along'}"
        yield Candidate(label, label, _run_plan, (plan, x, out), 2 * x.nbytes)


def candidates() -> Iterator[Candidate]:
    """Name everything whose figures are stored; the copies first."""
    yield from copies()
    x, out = matrices(torch.float32)
    moved = 2 * x.nbytes
    grid = (COLUMNS // 32, ROWS // 32)
    for name in ("naive", "tiled", "padded"):
        kernel = rung(name)[grid, (32, 8)]
        yield Candidate(name, name, kernel, (x, out, ROWS, COLUMNS), moved)
    text = (SOURCES / "swizzled.cu").read_text()
    down = kw.cuda.compile(text)["transpose_swizzled"]
    along = kw.cuda.compile(_exchanged(text, "blockIdx.x", "blockIdx.y"))
    for name, label, kernel in (
        ("swizzled", "swizzled, 16 bytes, blocks down", down[grid[::-1], (8, 8)]),
        (
            "swizzled_along",
            "swizzled, 16 bytes, blocks along",
            along["transpose_swizzled"][grid, (8, 8)],
        ),
    ):
        yield Candidate(name, label, kernel, (x, out, ROWS, COLUMNS), moved)
    for dtype in DTYPES:
        x, out = matrices(dtype)
        for kernel in ("registers", "staged", "any", "auto"):
            label = f"solutions.transpose, {kernel}, {short(dtype)}"
            name = f"{kernel}_{short(dtype)}"
            run = _solution(kernel)
            yield Candidate(name, label, run, (x, out), 2 * x.nbytes, short(dtype))
        yield Candidate(
            f"torch_{short(dtype)}",
            f"torch, x.mT.contiguous(), {short(dtype)}",
            _torch_transpose,
            (x, out),
            2 * x.nbytes,
            short(dtype),
        )
    yield from _awkward()
    yield from _strided_copies()
    yield from _particles()


def matrices(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a matrix of full size and room for its transpose."""
    x = torch.randint(-100, 100, (ROWS, COLUMNS), device="cuda").to(dtype)
    return x, x.new_empty(COLUMNS, ROWS)


def rung(stem: str) -> kw.cuda.Kernel:
    """Compile a rung of the ladder; the file says what its kernel is called."""
    module = kw.cuda.compile((SOURCES / f"{stem}.cu").read_text(), name=f"{stem}.cu")
    return module[module.kernels[0]]


def particles_kernel(solved: bool) -> kw.cuda.Kernel:
    """Compile the detective as it is given to the learner, or mended."""
    region = read_region(ANSWERS / "aos_to_soa.cu", "aos_to_soa")
    text = region.text_solved if solved else region.text_stub
    return kw.cuda.compile(text)["aos_to_soa"]


def _exchanged(text: str, one: str, other: str) -> str:
    return text.replace(one, "@").replace(other, one).replace("@", other)


def _awkward() -> Iterator[Candidate]:
    for dtype in (torch.bfloat16, torch.float32):
        name = short(dtype)
        for what, shape in (
            ("odd", (16383, 8191)),
            ("batch", (64, 2048, 1024)),
            ("thin", (2**24, 8)),
        ):
            x = torch.randn(shape, device="cuda").to(dtype)
            out = x.new_empty((*shape[:-2], shape[-1], shape[-2]))
            label = f"solutions.transpose, {shape}, {name}"
            run = _solution("auto")
            yield Candidate(f"{what}_{name}", label, run, (x, out), 2 * x.nbytes, name)


_STRIDED = """
__global__ void copy_strided(const float* x, float* out, int n, int stride,
                             int offset) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[(long long)i * stride + offset];
}
"""

# Four neighbours a thread: lanes are 16 bytes apart, and each load uses a quarter.
_CHUNKED = """
__global__ void copy_chunked(const float* x, float* out, int n) {
    int first = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
    for (int i = first; i < min(first + 4, n); ++i) out[i] = x[i];
}
"""


def _strided_copies() -> Iterator[Candidate]:
    n = 2**25
    kernel = kw.cuda.compile(_STRIDED)["copy_strided"][n // 256, 256]
    x = torch.randn(33 * n, device="cuda")
    out = x.new_empty(n)
    for stride in (1, 2, 4, 8, 16, 32):
        run = (x, out, n, stride, 0)
        yield Candidate(f"stride_{stride}", str(stride), kernel, run, 8 * n)
    yield Candidate("offset_1", "1, from x[1] on", kernel, (x, out, n, 1, 1), 8 * n)
    n = 2**27
    x, out = x[:n].clone(), x.new_empty(n)
    chunked = kw.cuda.compile(_CHUNKED)["copy_chunked"][n // 1024, 256]
    coalesced = rung("coalesced_copy")[n // 1024, 256]
    yield Candidate(
        "copy_chunked", "four neighbours a thread", chunked, (x, out, n), 8 * n
    )
    yield Candidate(
        "copy_coalesced", "four, a block apart", coalesced, (x, out, n), 8 * n
    )


def _particles() -> Iterator[Candidate]:
    n = 2**24
    aos = torch.randn(n, FIELDS, device="cuda")
    soa = aos.new_empty(FIELDS, n)
    for name, label in (
        ("broken", "8 floats, a thread a particle"),
        ("mended", "8 floats, with a tile"),
    ):
        kernel = particles_kernel(name == "mended")[n // 256, 256]
        yield Candidate(f"aos_{name}", label, kernel, (aos, soa, n), 2 * aos.nbytes)
    # Larger records: a warp's sectors no longer wait in the cache for the next field.
    region = read_region(ANSWERS / "aos_to_soa.cu", "aos_to_soa")
    for fields in (16, 32):
        text = region.text_stub.replace("8 * i", f"{fields} * i")
        text = text.replace("field < 8", f"field < {fields}")
        few = n * FIELDS // fields
        kernel = kw.cuda.compile(text)["aos_to_soa"][few // 256, 256]
        run = (aos.view(few, fields), soa.view(fields, few), few)
        label = f"{fields} floats, a thread a particle"
        yield Candidate(f"aos_broken_{fields}", label, kernel, run, 2 * aos.nbytes)


def short(dtype: torch.dtype) -> str:
    """Name a dtype without its module."""
    return str(dtype).removeprefix("torch.")


def _run_plan(plan: family.Plan, x: torch.Tensor, out: torch.Tensor) -> None:
    family.launch_plan(plan, x, out)


def _solution(kernel: Any) -> Callable[[torch.Tensor, torch.Tensor], None]:
    def run(x: torch.Tensor, out: torch.Tensor) -> None:
        family.transpose(x, out=out, kernel=kernel)

    return run


def _torch_transpose(x: torch.Tensor, out: torch.Tensor) -> None:
    out.copy_(x.mT)


def measure(
    todo: list[Candidate], rounds: int, quiet: bool = False
) -> tuple[list[dict[str, Any]], float]:
    """Time all candidates in rounds; return a row each, and the copy's GB/s."""
    times: dict[str, list[float]] = {c.name: [] for c in todo}
    for _ in range(rounds):
        for c in todo:
            timing = kw.bench(c.run, *c.arguments, seconds=0.03, device="cuda")
            times[c.name].append(timing.median_ms)
    rate = {c.name: [c.bytes_moved / ms / 1e6 for ms in times[c.name]] for c in todo}
    sized = {
        c.bytes_moved: c.name
        for c in todo
        if c.name.startswith("copy_") and c.name[5:].isdigit()
    }
    rows = []
    for c in todo:
        # The copy of as many bytes, or of the nearest number of them.
        peer = sized[min(sized, key=lambda size: abs(size - c.bytes_moved))]
        ratios = [r / k for r, k in zip(rate[c.name], rate[peer], strict=True)]
        median = statistics.median(times[c.name])
        rows.append(
            {
                "name": c.name,
                "label": c.label,
                "dtype": c.dtype,
                "bytes": c.bytes_moved,
                "median_ms": median,
                "low_ms": min(times[c.name]),
                "high_ms": max(times[c.name]),
                "gbps": statistics.median(rate[c.name]),
                "ratio": statistics.median(ratios),
            }
        )
        if not quiet:
            print(
                f"{c.label:<48} {median:8.4f} ms {rows[-1]['gbps']:8.1f} GB/s "
                f"{rows[-1]['ratio']:6.1%} of copy"
            )
    biggest = sized[2 * ROWS * COLUMNS * 4]
    return rows, statistics.median(rate[biggest])


if __name__ == "__main__":
    sys.exit(main())
