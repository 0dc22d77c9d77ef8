"""Chapter 2 on a GPU: every rung right, then timed against a copy in the same run.

    python -m benchmarks.transpose                 measure and store
    python -m benchmarks.transpose --check         and hold against the floors
    python -m benchmarks.transpose --only-correct  no timing; also without a GPU

Matrices are 16384 x 8192 unless a row says otherwise. Each candidate is compared with
a copy of as many bytes in its own round (``_candidates``, ``_peers``).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

import kernelwright as kw
from benchmarks import _command, _peers
from benchmarks._candidates import Candidate, short
from benchmarks._sources import detective, detective_kernel, rung
from benchmarks._sweep import Sweep, Sweeps
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
ROUNDS = 7
FIELDS = 8
SOURCES = Path(family.__file__).parent

# Lowest ratio to the copy that is no regression, by device.
FLOORS: dict[str, dict[str, float]] = {
    "nvidia-h200": {"auto_float32": 0.90, "auto_bfloat16": 0.90}
}


def main() -> int:
    """Check, measure, store; return 0 if all is right and above its floor."""
    options = _command.command_line(__doc__).parse_args()
    return _command.run("transpose", options, check_values, measured, FLOORS)


def measured(options: argparse.Namespace) -> _command.Measured:
    """Time every candidate."""
    check_large()
    rows = _peers.beside(list(candidates()), ROUNDS)
    yield rows, {"copy_gbps": round(_peers.copy_gbps(rows), 1)}


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
        kernel = detective_kernel("transpose", "aos_to_soa", solved=solved)
        kernel[kw.cdiv(n, 256), 256](aos, soa, n)
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
    for dtype in DTYPES:
        x = torch.randn(ROWS, COLUMNS, device="cuda").to(dtype)
        yield _peers.copy_of(x, f"copy_{x.nbytes}")


def plans(dtype: torch.dtype) -> Sweep:
    """Name every plan that ``any_size.cu`` could be launched by."""
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
    found = []
    for plan in every:
        label = f"{plan.expression} {'down' if plan.down else 'along'}"
        given = (plan, x, out)
        found.append(Candidate(label, label, family.launch_plan, given, 2 * x.nbytes))
    return Sweep(f"plans, {short(dtype)}", found, [_peers.copy_of(x, "copy")])


def sweeps() -> Sweeps:
    """Sweep the plans of ``any_size.cu`` for two sizes of an element."""
    return [partial(plans, dtype) for dtype in (torch.bfloat16, torch.float32)]


def candidates() -> Iterator[Candidate]:
    """Name everything whose figures are stored; the copies first."""
    yield from copies()
    x, out = matrices(torch.float32)
    moved = 2 * x.nbytes
    grid = (COLUMNS // 32, ROWS // 32)
    for name in ("naive", "tiled", "padded"):
        launch = rung(SOURCES, name)[grid, (32, 8)]
        yield Candidate(name, name, launch, (x, out, ROWS, COLUMNS), moved)
    text = (SOURCES / "swizzled.cu").read_text()
    down = kw.cuda.compile(text)["transpose_swizzled"]
    along = kw.cuda.compile(_exchanged(text, "blockIdx.x", "blockIdx.y"))
    for name, label, launch in (
        ("swizzled", "swizzled, 16 bytes, blocks down", down[grid[::-1], (8, 8)]),
        (
            "swizzled_along",
            "swizzled, 16 bytes, blocks along",
            along["transpose_swizzled"][grid, (8, 8)],
        ),
    ):
        yield Candidate(name, label, launch, (x, out, ROWS, COLUMNS), moved)
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
    coalesced = rung(SOURCES, "coalesced_copy")[n // 1024, 256]
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
        kernel = detective_kernel("transpose", "aos_to_soa", solved=name == "mended")
        launch = kernel[n // 256, 256]
        yield Candidate(f"aos_{name}", label, launch, (aos, soa, n), 2 * aos.nbytes)
    # Larger records: a warp's sectors no longer wait in the cache for the next field.
    given = detective("transpose", "aos_to_soa").text_stub
    for fields in (16, 32):
        text = given.replace("8 * i", f"{fields} * i")
        text = text.replace("field < 8", f"field < {fields}")
        few = n * FIELDS // fields
        launch = kw.cuda.compile(text)["aos_to_soa"][few // 256, 256]
        views = (aos.view(few, fields), soa.view(fields, few), few)
        label = f"{fields} floats, a thread a particle"
        yield Candidate(f"aos_broken_{fields}", label, launch, views, 2 * aos.nbytes)


def _solution(kernel: Any) -> Callable[[torch.Tensor, torch.Tensor], None]:
    def run(x: torch.Tensor, out: torch.Tensor) -> None:
        family.transpose(x, out=out, kernel=kernel)

    return run


def _torch_transpose(x: torch.Tensor, out: torch.Tensor) -> None:
    out.copy_(x.mT)


if __name__ == "__main__":
    sys.exit(main())
