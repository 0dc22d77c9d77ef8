"""Chapter 6 on a GPU: every rung right, then timed against cuBLAS in the same run.

    python -m benchmarks.matmul                 measure and store
    python -m benchmarks.matmul --check         and hold against the floors
    python -m benchmarks.matmul --only-correct  no timing; also without a GPU

Products of 4096 x 4096 x 4096 unless a row says otherwise, in fp32 with TF32 off. Each
candidate is compared with cuBLAS on the same operands in its own round (``_peers``).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

import kernelwright as kw
from benchmarks import _command, _peers
from benchmarks._candidates import Candidate, Row, short
from benchmarks._matmul_counters import plain_lanes
from benchmarks._sources import detective_kernel
from benchmarks._sweep import Sweep, Sweeps
from solutions import matmul as family

SIZE = 4096
SHAPES = (
    (1, 1, 1),
    (64, 64, 64),
    (65, 63, 17),
    (128, 256, 40),
    (257, 1009, 130),
    (1000, 8, 512),
)
# With "wide" and "warp_tiles" beside them, once all are timed again: an H100's file has
# those two already.
RUNGS = ("naive", "coalesced", "tiled", "register_blocked", "double_buffered")
ROUNDS, SECONDS = 7, 0.02

# Lowest ratio to cuBLAS that is no regression, by device.
FLOORS: dict[str, dict[str, float]] = {
    "nvidia-h200": {"auto": 0.90, "double_buffered": 0.82}
}


def main() -> int:
    """Check, measure, store; return 0 if all is right and above its floor."""
    options = _command.command_line(__doc__).parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    return _command.run("matmul", options, check_values, measured, FLOORS)


def measured(options: argparse.Namespace) -> _command.Measured:
    """Time every candidate; count a race's errors."""
    rows = _peers.beside(list(candidates()), ROUNDS, SECONDS)
    yield [*rows, race()], {"copy_gbps": kw.device().copy_gbps}


# --- right first ------------------------------------------------------------------


def check_values(device: str) -> None:
    """Hold every kernel against float64, over shapes, layouts and types."""
    for m, n, k in SHAPES:
        for dtype in (torch.float32, torch.float64):
            a = torch.randn(m, k, dtype=dtype, device=device)
            b = torch.randn(k, n, dtype=dtype, device=device)
            expect(family.matmul(a, b), a, b)
            expect(family.matmul(a.mT.contiguous().mT, b), a, b)
            expect(family.matmul(a, b.mT.contiguous().mT), a, b)
        if not (n % 4 or k % 4):
            a, b = a.float(), b.float()
            for rung in RUNGS:
                expect(family.matmul(a, b, kernel=rung), a, b)  # type: ignore[arg-type]
    print(f"right on {device}: {len(SHAPES)} shapes")


def expect(got: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> None:
    """Demand what rounding k times may do, and no more."""
    wanted = a.double() @ b.double()
    scale = (a.double().square() @ b.double().square()).sqrt()
    bound = 4 * torch.finfo(got.dtype).eps * a.shape[-1] ** 0.5 * scale
    worst = ((got.double() - wanted).abs() - bound).max()
    assert bool(worst <= 0), f"{tuple(a.shape)} @ {tuple(b.shape)}, {got.dtype}"


def race() -> Row:
    """Say how often the detective's kernel, as it is given, is wrong."""
    kernel = detective_kernel("matmul", "missing_barrier", solved=False)
    a, b = (torch.randn(SIZE, SIZE, device="cuda") for _ in range(2))
    want, out = a @ b, torch.empty(SIZE, SIZE, device="cuda")
    launches, wrong, elements, again = 20, 0, 0, 0
    before = torch.zeros_like(want, dtype=torch.bool)
    for _ in range(launches):
        kernel[(SIZE // 32, SIZE // 32), (32, 32)](a, b, out, SIZE, SIZE, SIZE)
        bad = (out - want).abs() > 1e-2
        wrong, elements = wrong + bool(bad.any()), elements + int(bad.sum())
        again += int((bad & before).sum())
        before = bad
    return {
        "name": "missing_barrier",
        "label": "tiled, one barrier a tile",
        "launches": launches,
        "wrong_launches": wrong,
        "wrong_elements": elements / launches,
        "wrong_share": elements / launches / SIZE**2,
        "again_share": again / max(1, elements),
    }


# --- then fast --------------------------------------------------------------------


def plans() -> Sweep:
    """Name plans of ``any_shape.cu``, each once."""
    torch.backends.cuda.matmul.allow_tf32 = False
    a, b = operands((SIZE, SIZE), (SIZE, SIZE))
    every = [*family._COPIED, *family._LOADED]
    for base in (family.PIPELINED, family.MEDIUM):
        for stages in (2, 3, 4):
            every += [replace(base, stages=stages, lane_rows=rows) for rows in (8, 4)]
        every += [replace(base, stages=2, steps=32), replace(base, stages=4, steps=8)]
    found = []
    for plan in dict.fromkeys(every):
        label = plan.expression(torch.float32, True, False, True)
        found.append(product(label, label, _run_plan(plan), a, b))
    return Sweep("plans", found, [product("cublas", "cuBLAS", torch.matmul, a, b)])


def sweeps() -> Sweeps:
    """Sweep the plans of ``any_shape.cu``."""
    return [plans]


def candidates() -> Iterator[Candidate]:
    """Name everything whose figures are stored; each peer before what it judges."""
    a, b = operands((SIZE, SIZE), (SIZE, SIZE))
    yield product("cublas", "cuBLAS, fp32", torch.matmul, a, b)
    for rung in RUNGS:
        yield product(rung, rung.replace("_", " "), _rung(rung), a, b)
    yield product("plain_lanes", "double buffered, lanes in order", _plain(), a, b)
    yield product("auto", "solutions.matmul", family.matmul, a, b)
    yield product("tf32", "cuBLAS, TF32 (rounded factors)", _tf32, a, b)
    at, bt = a.mT.contiguous().mT, b.mT.contiguous().mT
    yield from _pair("nt", "b transposed", a, bt)
    yield from _pair("tn", "a transposed", at, b)
    yield from _pair("tt", "both transposed", at, bt)
    for size in (512, 1024, 2048, 8192):
        yield from _pair(f"{size}", f"{size}", *operands((size, size), (size, size)))
    yield from _pair("odd", "4095, 4097, 4093", *operands((4095, 4093), (4093, 4097)))
    yield from _pair("thin", "16384, 64, 4096", *operands((16384, 4096), (4096, 64)))
    batch = operands((32, 1024, 1024), (32, 1024, 1024))
    yield from _pair("batch", "32 products of 1024", *batch)
    double = [x.double() for x in (a, b)]
    yield from _pair("double", "4096, fp64", *double)


def product(
    name: str,
    label: str,
    run: Callable[[torch.Tensor, torch.Tensor], object],
    a: torch.Tensor,
    b: torch.Tensor,
    peer: str = "cublas",
) -> Candidate:
    """Name what returns or writes the product of a and b; batches count whole."""
    flops = 2 * a.numel() * b.shape[-1]
    facts = {"shape": [*a.shape, b.shape[-1]]}
    return Candidate(
        name, label, run, (a, b), 0, short(a.dtype),
        flops=flops, peers=(peer,), facts=facts,
    )  # fmt: skip


def _pair(
    name: str, label: str, a: torch.Tensor, b: torch.Tensor
) -> Iterator[Candidate]:
    """Name cuBLAS and ours on the same operands."""
    peer = f"cublas_{name}"
    yield product(peer, f"cuBLAS, {label}", torch.matmul, a, b, peer)
    ours = f"solutions.matmul, {label}"
    yield product(f"auto_{name}", ours, family.matmul, a, b, peer)


def operands(
    left: tuple[int, ...], right: tuple[int, ...]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw two operands on the GPU."""
    return torch.randn(left, device="cuda"), torch.randn(right, device="cuda")


def _rung(name: Any) -> Callable[[torch.Tensor, torch.Tensor], object]:
    return lambda a, b: family.matmul(a, b, kernel=name)


def _plain() -> Callable[[torch.Tensor, torch.Tensor], object]:
    kernel = plain_lanes()

    def run(a: torch.Tensor, b: torch.Tensor) -> None:
        (m, k), n = a.shape, b.shape[1]
        kernel[(n // 128, m // 128), 256](a, b, a.new_empty(m, n), m, n, k)

    return run


def _run_plan(plan: family.Plan) -> Callable[[torch.Tensor, torch.Tensor], object]:
    def run(a: torch.Tensor, b: torch.Tensor) -> None:
        family._launch(a, b, a.new_empty(a.shape[0], b.shape[1]), plan)

    return run


def _tf32(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        return a @ b
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False


if __name__ == "__main__":
    sys.exit(main())
