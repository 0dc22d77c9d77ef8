"""Chapter 7 on a GPU: every rung right, then timed against cuBLAS in the same run.

    python -m benchmarks.tensor_cores                 measure and store
    python -m benchmarks.tensor_cores --check         and hold against the floors
    python -m benchmarks.tensor_cores --only-correct  no timing; also without a GPU

Products are 8192 x 8192 x 8192 unless a row says otherwise, and each candidate is
compared with cuBLAS in its own round (``_peers``). A product of this size draws all the
power that the GPU may draw, and its clock falls: the same kernel is a tenth slower
after a second of work than after a pause. Rounds see to it that all meet the same heat.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch

import kernelwright as kw
from benchmarks import _command, _peers
from benchmarks._candidates import Candidate, short
from benchmarks._sources import detective_kernel
from benchmarks._sweep import Sweep, Sweeps
from solutions.tensor_cores import gemm
from solutions.tensor_cores import tiles as family

SIDE = 8192
ROUNDS, SECONDS = 5, 0.15
SHAPES = (
    (1, 1, 1),
    (64, 64, 64),
    (33, 17, 50),
    (70, 130, 8),
    (0, 4, 4),
    (5, 7, 0),
    (100, 65, 129),
    (257, 129, 200),
)
DTYPES = (torch.float16, torch.bfloat16)

# Lowest ratio to cuBLAS that is no regression, by device.
FLOORS: dict[str, dict[str, float]] = {
    "nvidia-h200": {"gemm_bfloat16": 0.58, "wmma_shared_bfloat16": 0.33}
}

PLANS = (
    family.LARGE,
    replace(family.LARGE, stages=4),
    *(replace(family.LARGE, group=group) for group in (2, 4, 6, 11, 16)),
    family.Plan((256, 128), 64, (64, 64), 3),
    family.Plan((256, 128), 64, (64, 64), 3, 4),
    family.Plan((128, 256), 32, (64, 64), 5),
    family.MEDIUM,
    family.Plan((128, 128), 32, (64, 64), 4),
    family.Plan((128, 128), 64, (64, 32), 3),
    family.SMALL,
)


def main() -> int:
    """Check, measure, store; return 0 if all is right and above its floor."""
    options = _command.command_line(__doc__).parse_args()
    return _command.run("tensor_cores", options, check_values, measured, FLOORS)


def measured(options: argparse.Namespace) -> _command.Measured:
    """Time every candidate."""
    check_large_product()
    rows = _peers.beside(list(candidates()), ROUNDS, SECONDS)
    for row in rows:
        row["slower"] = 1 / row["ratio"]
    yield rows, {"side": SIDE}


# --- right first ------------------------------------------------------------------


def check_values(device: str) -> None:
    """Hold every kernel against float64, over dtypes, layouts, shapes and batches."""
    for dtype in DTYPES:
        for m, n, k in SHAPES:
            for a, b in layouts(m, n, k, dtype, device):
                for out in (None, torch.float32):
                    expect(gemm(a, b, out_dtype=out), a, b)
        for name, rung in family.RUNGS.items():
            n, k = 2 * rung.block[1], 3 * rung.depth
            a, b = next(layouts(rung.block[0], n, k, dtype, device))
            got = gemm(a, b, out_dtype=torch.float32, kernel=name)  # type: ignore[arg-type]
            expect(got, a, b)
    a = torch.randn(3, 1, 40, 24, device=device).half()
    b = torch.randn(2, 24, 16, device=device).half()
    expect(gemm(a, b), a, b)
    check_detective(device)
    print(f"right on {device}: {len(SHAPES)} shapes, {len(family.RUNGS)} rungs")


def layouts(
    m: int, n: int, k: int, dtype: torch.dtype, device: str
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Draw matrices stored by rows and by columns, in all four combinations."""
    generator = torch.Generator(device).manual_seed(m + n + k)

    def drawn(rows: int, columns: int, by_rows: bool) -> torch.Tensor:
        shape = (rows, columns) if by_rows else (columns, rows)
        x = torch.randn(shape, generator=generator, device=device).to(dtype)
        return x if by_rows else x.mT

    for a_rows in (True, False):
        for b_rows in (True, False):
            yield drawn(m, k, a_rows), drawn(k, n, b_rows)


def check_detective(device: str) -> None:
    """Hold the mended detective against float64."""
    kernel = detective_kernel("tensor_cores", "stale_stage", solved=True)
    for k in (0, 64, 128, 320):
        a, b = next(layouts(128, 128, k, torch.float16, device))
        c = torch.full((128, 128), torch.nan, device=device)
        kernel[(1, 1), 128, 98304](a, b, c, 128, 128, k)
        expect(c, a, b)


def expect(got: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> None:
    """Demand an error of at most twice the library's, both against float64."""
    exact = a.double() @ b.double()
    library = a @ b if got.dtype == a.dtype else a.float() @ b.float()
    scale = a.double().abs() @ b.double().abs()
    allowed = 2 * (library.double() - exact).abs().amax() if exact.numel() else 0.0
    rounding = torch.finfo(torch.float32).eps * max(1, a.shape[-1]) ** 0.5 * scale
    if got.dtype != torch.float32:
        rounding = rounding + torch.finfo(got.dtype).eps * exact.abs()
    assert got.is_contiguous() and got.shape == exact.shape
    wrong = (got.double() - exact).abs() > allowed + rounding
    assert not wrong.any(), f"{tuple(a.shape)} x {tuple(b.shape)}, {a.dtype}"
    assert not torch.isnan(got).any()


def check_large_product() -> None:
    """Go past 2^31 elements, where a 32-bit index wraps; look at some rows."""
    rows, k = 2**16 + 128, 2**15 + 64
    a = torch.randn(rows, k, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(k, 264, device="cuda", dtype=torch.bfloat16)
    picked = torch.tensor([0, 1, 2**15, rows - 130, rows - 1], device="cuda")
    expect(gemm(a, b)[picked].contiguous(), a[picked], b)
    # A result of more than 2^31 elements, from small factors.
    a, b = a[:, :64].contiguous(), a[: 2**15 + 8, :64].contiguous().mT
    c = gemm(a, b)
    assert c.numel() > 2**31
    expect(c[picked].contiguous(), a[picked], b)
    print(f"right for {rows * k:,} and {c.numel():,} elements")


# --- then fast --------------------------------------------------------------------


def square(side: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw two square matrices."""
    a, b = (torch.randn(side, side, device="cuda").to(dtype) for _ in range(2))
    return a, b


def cublas(name: str, a: torch.Tensor, b: torch.Tensor, label: str = "") -> Candidate:
    """Name torch.matmul of a and b, which asks cuBLAS: the peer of what follows.

    Args:
        name: what stands behind ``cublas_``.
        a: m by k.
        b: k by n.
        label: what stands behind ``cuBLAS``; the dtype and the name when absent.
    """
    (m, k), n = a.shape, b.shape[1]
    return Candidate(
        f"cublas_{name}",
        f"cuBLAS, {label or f'{short(a.dtype)}, {name}'}",
        _multiply,
        (a, b, a.new_empty(m, n)),
        0,
        short(a.dtype),
        flops=2 * m * n * k,
        peers=(f"cublas_{name}",),
        facts={"shape": [m, n, k]},
    )


def square_cublas(side: int, dtype: torch.dtype) -> Candidate:
    """Name cuBLAS on square matrices."""
    a, b = square(side, dtype)
    name = f"{short(dtype)}_{side}"
    return cublas(name, a, b, f"{short(dtype)}, {side}")


def ours(peer: Candidate, name: str, label: str) -> Candidate:
    """Name ``gemm`` on what a peer multiplies."""
    return replace(peer, name=name, label=label, run=gemm, arguments=peer.arguments[:2])


def plans() -> Sweep:
    """Name every plan that gemm.cu is tried with."""
    peer = square_cublas(SIDE, torch.bfloat16)
    found = []
    a, b, _ = peer.arguments
    out = a.new_empty(1, SIDE, SIDE)
    for plan in PLANS:
        label = f"{plan.block} x {plan.depth}, warps {plan.warp}, "
        label += f"{plan.stages} stages, group {plan.group}"
        given = (plan, a, b, out)
        one = replace(peer, name=label, label=label, run=_run_plan, arguments=given)
        found.append(one)
    return Sweep("plans", found, [peer], seconds=SECONDS)


def sweeps() -> Sweeps:
    """Sweep the plans of gemm.cu."""
    return [plans]


def candidates() -> Iterator[Candidate]:
    """Name everything whose figures are stored; each peer before what it judges."""
    for dtype in (torch.bfloat16, torch.float16):
        kind = short(dtype)
        peer = square_cublas(SIDE, dtype)
        yield peer
        a, b, _ = peer.arguments
        on_rungs = replace(
            peer, arguments=(a, b, torch.empty(SIDE, SIDE, device="cuda"))
        )
        for stem in family.RUNGS:
            run = _rung(stem, family.rung_source(stem, dtype))
            label = f"{stem}.cu, {kind}"
            yield replace(on_rungs, name=f"{stem}_{kind}", label=label, run=run)
        if dtype == torch.bfloat16:
            text = family.rung_source("wmma_shared", dtype, as_written=True)
            yield replace(
                on_rungs,
                name="wmma_shared_as_written",
                label="wmma_shared.cu, bfloat16, WMMA's own loads",
                run=_rung("wmma_shared", text),
            )
        yield ours(peer, f"gemm_{kind}", f"solutions.tensor_cores.gemm, {kind}")
    yield from _layouts_and_shapes()
    yield from _claims()


def _layouts_and_shapes() -> Iterator[Candidate]:
    a, b = square(SIDE, torch.bfloat16)
    pairs = [("nt", a, b.mT), ("tn", a.mT, b), ("tt", a.mT, b.mT)]
    for m, n, k in ((8191, 8191, 8191), (8200, 8200, 8200), (64 * 1024, 512, 512)):
        x = torch.randn(m, k, device="cuda").bfloat16()
        y = torch.randn(k, n, device="cuda").bfloat16()
        pairs.append((f"{m}x{n}x{k}", x, y))
    for name, x, y in pairs:
        peer = cublas(name, x, y)
        yield peer
        yield ours(peer, f"gemm_{name}", f"gemm, bfloat16, {name}")


def _claims() -> Iterator[Candidate]:
    """Name what a gain of 1.26 might have been measured against, by size."""
    for side in (1024, 2048, 4096, SIDE):
        peers = (f"gemm_{side}",)
        half = replace(square_cublas(side, torch.bfloat16), peers=peers)
        yield replace(half, name=f"eager_bfloat16_{side}")
        yield ours(half, f"gemm_{side}", f"gemm, bfloat16, {side}")
        single = replace(square_cublas(side, torch.float32), peers=peers)
        for name, run in (("float32", _multiply), ("tf32", _multiply_tf32)):
            label = f"torch.matmul, {name}, {side}"
            yield replace(single, name=f"eager_{name}_{side}", label=label, run=run)


def _multiply(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    torch.matmul(a, b, out=out)


def _multiply_tf32(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.matmul(a, b, out=out)
    torch.backends.cuda.matmul.allow_tf32 = False


def _rung(name: str, text: str) -> Callable[..., None]:
    rung = family.RUNGS[name]
    kernel = kw.cuda.compile(text, name=f"{name}.cu")[rung.kernel]
    launch = kernel[rung.grid(SIDE, SIDE), rung.threads, rung.shared_bytes]

    def run(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
        launch(a, b, out, SIDE, SIDE, SIDE)

    return run


def _run_plan(
    plan: family.Plan, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor
) -> None:
    left, right = (family.Operand(x, True, SIDE, 0) for x in (a, b))
    family.launch(plan, left, right, out, SIDE, SIDE, SIDE)


if __name__ == "__main__":
    sys.exit(main())
