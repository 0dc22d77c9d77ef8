"""Chapter 9 on a GPU: every rung right, then timed beside cuDNN and FlashAttention-2.

    python -m benchmarks.flash_attention                 measure and store
    python -m benchmarks.flash_attention --check         and hold against the floors
    python -m benchmarks.flash_attention --only-correct  no timing; also without a GPU

Candidates of one size are timed in turn, round after round. ``ratio`` is the time of
the row's peer over its own in the same round: of torch's attention, pinned to cuDNN, or
of the formula written out. FLOPs are 4 n m d a head, half of it under a causal mask.
Memory is what a call needs at its worst moment beyond its inputs.
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn.attention import SDPBackend

import kernelwright as kw
from benchmarks import _command, _peers
from benchmarks._attention import Heads, draw, options_of, sdpa, standard
from benchmarks._candidates import Candidate, Row, short
from benchmarks._sweep import Sweep, Sweeps
from solutions.flash_attention import flash_attention
from solutions.flash_attention.plain import attend_plain
from solutions.flash_attention.rungs import launch_mma

ROUNDS, SECONDS = 5, 0.04
_HALVES = (torch.float16, torch.bfloat16)
# Lowest figures that are no regression, by device.
FLOORS: dict[str, dict[str, float]] = {
    "nvidia-h200": {
        "wmma_128": 0.15,
        "mma_128": 0.50,
        "mma_128_causal": 0.50,
        "mma_64": 0.70,
        "flash_4096": 3.5,
    }
}


def main() -> int:
    """Check, measure, store; return 0 if all is right and above its floor."""
    options = _command.command_line(__doc__).parse_args()
    return _command.run("flash_attention", options, check_correct, measured, FLOORS)


def measured(options: argparse.Namespace) -> _command.Measured:
    """Time all groups, and memory against length."""
    torch.backends.cuda.matmul.allow_tf32 = False
    rows: list[Row] = []
    for group in groups():
        found = _peers.beside(group, ROUNDS, SECONDS, warm_ups=1)
        for row, one in zip(found, group, strict=True):
            row["peak_bytes"] = kw.peak_memory(one.run, *one.arguments).peak_bytes
        rows += found
        del group, one  # and with them their tensors
        torch.cuda.empty_cache()
        yield rows, {}
    rows += lazy_rows()
    rows += memory_rows((1024, 2048, 4096, 8192, 16384, 32768, 65536))
    yield rows, {}


# --- right first ------------------------------------------------------------------


def check_correct(device: str) -> None:
    """Hold each rung against float64, its error against torch's own.

    The bound is the standard of the field: twice the error of torch's attention in the
    same dtype; and a floor where that is exact by chance.
    """
    generator = torch.Generator().manual_seed(9)
    shapes = [(2, 70, 77), (1, 64, 128), (3, 33, 200), (1, 1, 1)]
    if device == "cuda":
        shapes += [(4, 1000, 1031), (2, 4096, 4096)]
    for heads, q_len, kv_len in shapes:
        for kernel, dim, dtype in (
            ("forward", 64, torch.float32),
            ("causal", 64, torch.float32),
            *(("wmma", d, t) for d in (64, 128) for t in _HALVES),
            *(("mma", d, t) for d in (64, 128) for t in _HALVES),
        ):
            q, k, v = (
                torch.randn(1, heads, n, dim, generator=generator).to(device, dtype)
                for n in (q_len, kv_len, kv_len)
            )
            causal: Any = "bottom-right" if kernel == "causal" else False
            for kind in (causal, "bottom-right") if kernel == "mma" else (causal,):
                got = flash_attention(q, k, v, causal=kind, kernel=kernel)
                wide = (t.double() for t in (q, k, v))
                exact = flash_attention(*wide, causal=kind, kernel="plain")
                peer = attend_plain(q, k, v, options_of((q, k, v), kind))
                error, own = ((t.double() - exact).abs().max() for t in (got, peer))
                bound = 2 * own + 2 * torch.finfo(dtype).eps * exact.abs().max()
                assert error <= bound, (kernel, dim, dtype, q_len, kind, error, own)
    print(f"correct on {device}")


# --- then fast --------------------------------------------------------------------


def candidate(
    name: str,
    label: str,
    run: Callable[..., object],
    heads: Heads,
    peer: str,
    causal: bool = False,
) -> Candidate:
    """Name attention of some heads, and the candidate that it is compared with."""
    q, k, _ = heads
    return Candidate(
        name, label, run, tuple(heads), 0, short(q.dtype),
        flops=4.0 * q.numel() * k.shape[2] / (2 if causal else 1),
        peers=(peer,), facts={"n": q.shape[2]},
    )  # fmt: skip


def standard_causal(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The same, what comes later hidden by a mask."""
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    return torch.softmax(scores.masked_fill(later, -math.inf), dim=-1) @ v


def rung(kernel: str | None, causal: bool = False) -> Callable[..., torch.Tensor]:
    """Return a kernel of the chapter, or the one that is chosen where none is."""

    def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return flash_attention(q, k, v, causal=causal, kernel=kernel)  # type: ignore[arg-type]

    return run


_CUDNN = SDPBackend.CUDNN_ATTENTION


def groups() -> Iterator[list[Candidate]]:
    """Give what is timed together, one size after another."""
    for d, heads in ((128, 16), (64, 32)):
        for causal in (False, True):
            yield libraries(d, heads, causal)
    yield single_precision()
    at = draw(4, 32, 4096, 64)
    words = "bf16, batch 4, 32 heads of 64, 4,096 tokens"
    yield [
        candidate(f"{name}_4096", f"{label}, {words}", run, at, "standard_4096")
        for name, label, run in (
            ("standard", "standard", standard),
            ("flash", "mma.sync", rung("mma")),
            ("wmma", "WMMA", rung("wmma")),
            ("cudnn", "cuDNN", partial(sdpa, _CUDNN)),
        )
    ]


def libraries(d: int, heads: int, causal: bool) -> list[Candidate]:
    """Name the rungs on tensor cores beside the libraries, at 16,384 tokens."""
    at = draw(1, heads, 16384, d)
    end = f"{d}_causal" if causal else f"{d}"
    words = f"bf16, heads of {d}, 16,384 tokens" + ", causal" * causal
    fa2 = SDPBackend.FLASH_ATTENTION
    runs: list[tuple[str, str, Callable[..., object]]] = [
        ("cudnn", "cuDNN", partial(sdpa, _CUDNN, is_causal=causal)),
        ("fa2", "FlashAttention-2", partial(sdpa, fa2, is_causal=causal)),
        ("mma", "mma.sync", rung("mma", causal)),
        *([] if causal else [("wmma", "WMMA", rung("wmma"))]),
        ("auto", "flash_attention", rung(None, causal)),
    ]
    return [
        candidate(f"{name}_{end}", f"{label}, {words}", run, at, f"cudnn_{end}", causal)
        for name, label, run in runs
    ]


def single_precision() -> list[Candidate]:
    """Name the first two rungs beside the formula written out, in fp32."""
    at = draw(1, 32, 4096, 64, dtype=torch.float32)
    words = "fp32, heads of 64, 4,096 tokens"
    efficient = partial(sdpa, SDPBackend.EFFICIENT_ATTENTION)
    full, masked = "standard_fp32", "standard_fp32_causal"
    return [
        candidate(name, label, run, at, masked if causal else full, causal)
        for name, label, run, causal in (
            (full, f"standard, {words}", standard, False),
            ("forward_fp32", f"shared tiles, {words}", rung("forward"), False),
            (masked, f"standard, {words}, causal", standard_causal, True),
            ("causal_fp32", f"skipping, {words}, causal", rung("causal", True), True),
            ("efficient_fp32", f"memory-efficient SDPA, {words}", efficient, False),
        )
    ]


def memory_rows(lengths: Sequence[int]) -> list[Row]:
    """Measure time and memory against length, standard attention and flash."""
    rows = []
    for length in lengths:
        at = draw(4, 32, length, 64)
        for name, run in (("standard", standard), ("flash", rung("mma"))):
            row: Row = {
                "name": f"{name}_at_{length}",
                "label": f"{name}, {length:,} tokens",
                "n": length,
                "scores_bytes": 2 * at[0][..., 0].numel() * length,
            }
            try:
                use = kw.peak_memory(run, *at)
                timing = kw.bench(run, *at, seconds=0.05, device="cuda")
                row |= {"peak_bytes": use.peak_bytes, "median_ms": timing.median_ms}
            except torch.OutOfMemoryError as error:
                row["failed"] = str(error).split(". GPU")[0]
            torch.cuda.empty_cache()
            print(row, flush=True)
            rows.append(row)
    return rows


def lazy_rows() -> list[Row]:
    """Time the last rung with a rescale at every tile, beside the lazy one."""
    from solutions.flash_attention import rungs

    at = draw(1, 16, 16384, 128)
    options = options_of(at, False)
    source = (Path(rungs.__file__).parent / "mma.cu").read_text()
    lazy = "if (__any_sync(0xffffffff, grows))"
    assert lazy in source
    eager = kw.cuda.compile(source.replace(lazy, "if (true)"))
    kept = rungs._mma_kernel
    rows = []
    try:
        for name, label in (("lazy", "only where it grows"), ("eager", "every tile")):
            if name == "eager":
                rungs._mma_kernel = lambda name, _: eager[name]  # type: ignore[assignment]
            times = [
                kw.bench(launch_mma, *at, options, seconds=0.1).median_ms
                for _ in range(3)
            ]
            rows.append(
                {
                    "name": f"rescale_{name}",
                    "label": f"mma.sync, rescaled {label}",
                    "median_ms": statistics.median(times),
                }
            )
            print(rows[-1], flush=True)
    finally:
        rungs._mma_kernel = kept
    return rows


def tiles(dim: int, causal: bool) -> Sweep:
    """Name tiles of the last rung: keys a step, and warps."""
    at = draw(1, 2048 // dim, 16384, dim)
    options = options_of(at, causal)
    tried = {128: ((64, 4), (64, 8), (32, 4)), 64: ((128, 4), (64, 4), (128, 8))}
    found = [
        Candidate(f"{tile}", f"tile {tile}", launch_mma, (*at, options, tile))
        for tile in tried[dim]
    ]
    return Sweep(f"heads of {dim}, causal {causal}", found, seconds=0.1)


def sweeps() -> Sweeps:
    """Sweep the tiles of both head sizes."""
    every = itertools.product((128, 64), (False, True))
    return [partial(tiles, *one) for one in every]


if __name__ == "__main__":
    sys.exit(main())
