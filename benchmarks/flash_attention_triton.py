"""Chapter 10 on a GPU: every option right, then timed against SDPA in the same run.

    python -m benchmarks.flash_attention_triton                 measure and store
    python -m benchmarks.flash_attention_triton --check         and hold the floors
    python -m benchmarks.flash_attention_triton --only-correct  no timing

Random bf16 data unless a row says otherwise. The candidates of one question are timed
in turn, round after round, and each is compared with the first of them in its own
round. FLOPs are 4 b h n n d forward and 10 b h n n d backward, half under a causal
mask, whatever a kernel really computes.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import torch
from torch.nn.attention import SDPBackend

from benchmarks import _command, _peers
from benchmarks._attention import draw, options_of, sdpa, standard
from benchmarks._candidates import Candidate, Row
from benchmarks._flash_attention_triton_errors import check_values, measured_errors
from solutions.flash_attention_triton import backward, decode_attention, forward
from solutions.flash_attention_triton.causal import flash_triton_causal
from solutions.flash_attention_triton.fast import flash_fast
from solutions.flash_attention_triton.forward import Tiles, forward_triton
from solutions.flash_attention_triton.split import decode_split_kv
from solutions.flash_attention_triton.tiled import flash_triton
from solutions.flash_attention_triton.training import flash_backward

ROUNDS, SECONDS, COMPILERS = 3, 0.05, 12
BACKWARD = (
    (4, 16, 4096, 128),
    (1, 16, 16384, 128),
    (1, 16, 4096, 64),
    (1, 32, 16384, 64),
)
"""Batch, heads, tokens and head_dim."""
FLOORS: dict[str, dict[str, float]] = {
    "nvidia-h200": {
        "gluon_128_full": 0.92, "gluon_128_causal": 0.96, "triton_128_full": 0.70,
        "gluon_64_full": 1.05, "gluon_64_causal": 1.05, "backward_4096_full": 1.6,
        "backward_16384_full": 1.6, "backward_64_16384_full": 1.3,
        "decode": 0.95,
    }
}  # fmt: skip


def main() -> int:
    """Check, measure, store; return 0 if all is right and above its floor."""
    parser = _command.command_line(__doc__)
    parser.add_argument("--compile", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.compile is not None:
        return compile_some(options.compile)
    return _command.run(
        "flash_attention_triton", options, check_values, measured, FLOORS
    )


def measured(options: argparse.Namespace) -> _command.Measured:
    """Time all groups, then measure errors and memory."""
    compile_all()
    rows: list[Row] = []
    for group in groups():
        todo = beside_first(group)
        for one in todo:
            one.run()  # what is left to compile
        rows += _peers.beside(todo, ROUNDS, SECONDS)
        del todo, one  # and with them their tensors
        torch.cuda.empty_cache()
        yield rows, {}
    for more in (measured_errors, memory):
        rows += more()
        yield rows, {}


def beside_first(group: Iterator[Candidate]) -> list[Candidate]:
    """Compare every candidate of a group with its first."""
    first, *others = group
    return [replace(one, peers=(first.name,)) for one in (first, *others)]


def compile_all() -> None:
    """Compile every kernel in several processes: they share Triton's cache on disk."""
    command = [sys.executable, "-m", "benchmarks.flash_attention_triton", "--compile"]
    running = [subprocess.Popen([*command, str(k)]) for k in range(COMPILERS)]
    for process in running:
        process.wait()


def compile_some(share: int) -> int:
    """Run every COMPILERS-th candidate once."""
    place = 0
    for group in groups():
        for candidate in group:
            if place % COMPILERS == share:
                candidate.run()
            place += 1
    return 0


# --- what is timed ----------------------------------------------------------------


def groups() -> Iterator[Iterator[Candidate]]:
    """Yield groups that are timed together; the first of each is the peer."""
    for d, heads in ((128, 16), (64, 32)):
        for causal in (False, True):
            yield forwards(1, heads, 16384, d, causal)
    for n in (32768, 65536, 131072):
        yield forwards(1, 16, n, 128, True)
    for batch, heads, n, d in BACKWARD:
        for causal in (False, True):
            yield backwards(batch, heads, n, d, causal)
    yield decodes()
    yield claim()
    for d, heads in ((128, 16), (64, 32)):
        yield sweep(heads, d)


def forwards(
    batch: int, heads: int, n: int, d: int, causal: bool
) -> Iterator[Candidate]:
    """Name the forward passes at one size."""
    q, k, v = draw(batch, heads, n, d)
    flops = 4.0 * batch * heads * n * n * d / (2 if causal else 1)
    which = "causal" if causal else "full"
    tail = f"{d}_{which}" if n == 16384 else f"{d}_{which}_{n}"
    say = f"head_dim {d}, {n:,} tokens, {which}"

    def named(name: str, label: str, run: Callable[[], object]) -> Candidate:
        return timed(f"{name}_{tail}", f"{label}, {say}", run, flops=flops)

    cudnn, fa2 = SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION
    yield named("cudnn", "cuDNN", lambda: sdpa(cudnn, q, k, v, is_causal=causal))
    if n == 16384:
        yield named("fa2", "FA2", lambda: sdpa(fa2, q, k, v, is_causal=causal))
        if causal:
            yield named(
                "causal_rung",
                "`flash_triton_causal`",
                lambda: flash_triton_causal(q, k, v),
            )
            yield named("fast_rung", "`flash_fast`", lambda: flash_fast(q, k, v))
        else:
            yield named("tiled_rung", "`flash_triton`", lambda: flash_triton(q, k, v))
        yield named(
            "triton", "forward, Triton",
            lambda: forward(q, k, v, causal=causal, kernel="triton"),
        )  # fmt: skip
    if torch.cuda.get_device_capability()[0] == 9:
        yield named(
            "gluon", "forward, Gluon",
            lambda: forward(q, k, v, causal=causal, kernel="gluon"),
        )  # fmt: skip


def sweep(heads: int, d: int) -> Iterator[Candidate]:
    """Name the tiles that a tuner would try, on causal attention at 16,384 tokens."""
    q, k, v = draw(1, heads, 16384, d)
    options = options_of((q, k, v), True)
    for cut in (
        Tiles(128, 128, 8, 3), Tiles(128, 128, 8, 2), Tiles(128, 64, 8, 3),
        Tiles(128, 64, 4, 3), Tiles(64, 64, 4, 3), Tiles(64, 64, 4, 2),
    ):  # fmt: skip
        name = f"sweep_{d}_{cut.m}_{cut.n}_{cut.warps}_{cut.stages}"
        label = f"{cut.m}, {cut.n}, {cut.warps}, {cut.stages}"
        flops = 2.0 * heads * 16384**2 * d

        def run(cut: Tiles = cut) -> object:
            return forward_triton(q, k, v, options, cut)

        yield timed(name, label, run, flops=flops)


def backwards(
    batch: int, heads: int, n: int, d: int, causal: bool
) -> Iterator[Candidate]:
    """Name the backward passes at one size; the peer is FA2."""
    q, k, v, grad = draw(batch, heads, n, d, count=4)
    flops = 10.0 * batch * heads * n * n * d / (2 if causal else 1)
    which = "causal" if causal else "full"
    width, of_width = ("", "") if d == 128 else (f"{d}_", f", head_dim {d}")
    leaves = [t.clone().requires_grad_() for t in (q, k, v)]

    def named(name: str, label: str, run: Callable[[], object]) -> Candidate:
        say = f"{label}, backward, {n:,} tokens, {which}{of_width}"
        return timed(f"{name}_{width}{n}_{which}", say, run, flops=flops)

    for name, backend in (
        ("fa2_backward", SDPBackend.FLASH_ATTENTION),
        ("cudnn_backward", SDPBackend.CUDNN_ATTENTION),
    ):
        made = sdpa(backend, *leaves, is_causal=causal)
        yield named(
            name, "FA2" if "fa2" in name else "cuDNN", _again(made, leaves, grad)
        )
    out, lse = forward(q, k, v, causal=causal)
    if causal and d == 128:
        yield named(
            "backward_rung", "`flash_backward`",
            lambda: flash_backward(grad, q, k, v, out, lse),
        )  # fmt: skip
    yield named(
        "backward_triton", "two passes, Triton",
        lambda: backward(grad, q, k, v, out, lse, causal=causal, kernel="triton"),
    )  # fmt: skip
    yield named(
        "backward", "one pass, Gluon",
        lambda: backward(grad, q, k, v, out, lse, causal=causal),
    )  # fmt: skip


def _again(
    out: torch.Tensor, leaves: list[torch.Tensor], grad: torch.Tensor
) -> Callable[[], object]:
    return lambda: torch.autograd.grad(out, leaves, grad, retain_graph=True)


def decodes() -> Iterator[Candidate]:
    """Name decoding over a long cache; the bytes are the cache's, once."""
    batch, heads, kv_heads, n, d = 16, 32, 4, 32768, 128
    (q,) = draw(batch, heads, d, count=1)
    k, v = draw(batch, kv_heads, n, d, count=2)
    lengths = torch.full((batch,), n, dtype=torch.int32, device="cuda")

    def sdpa_decode() -> object:
        return sdpa(None, q[:, :, None], k, v, enable_gqa=True)

    def with_splits(splits: int) -> Callable[[], object]:
        return lambda: decode_attention(q, k, v, lengths, splits=splits)

    def named(name: str, label: str, run: Callable[[], object]) -> Candidate:
        return timed(name, label, run, bytes_moved=k.nbytes + v.nbytes)

    yield named("sdpa_decode", "SDPA, grouped heads", sdpa_decode)
    yield named(
        "split_rung",
        "`decode_split_kv`, 4 pieces",
        lambda: decode_split_kv(q, k, v, lengths),
    )
    for splits in (1, 2, 4, 8, 16, 32):
        label = f"decode_attention, pieces: {splits}"
        yield named(f"decode_{splits}", label, with_splits(splits))
    yield named(
        "decode", "decode_attention", lambda: decode_attention(q, k, v, lengths)
    )


def claim() -> Iterator[Candidate]:
    """Name the sources' own claim: attention at 4,096 tokens, with and without."""
    q, k, v = draw(4, 32, 4096, 64)
    flops = 4.0 * 4 * 32 * 4096 * 4096 * 64
    for name, label, run in (
        ("standard_4096", "standard attention", standard),
        ("flash_4096", "forward", forward),
    ):
        yield timed(name, label, partial(run, q, k, v), flops=flops)


def timed(
    name: str,
    label: str,
    run: Callable[[], object],
    *,
    flops: float = 0,
    bytes_moved: int = 0,
) -> Candidate:
    """Name a call that takes its tensors with it."""
    return Candidate(name, label, run, (), bytes_moved, "bfloat16", flops=flops)


def memory() -> list[Row]:
    """Measure what a forward pass takes beside its inputs and its output."""
    rows = []
    for n in (1024, 2048, 4096, 8192, 16384, 32768):
        for name, run in (("standard", standard), ("flash", _flash)):
            batch, heads = (4, 32) if n <= 4096 else (1, 32)
            q, k, v = draw(batch, heads, n, 64)
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            row: Row = {
                "name": f"memory_{name}_{n}", "label": f"{name}, {n:,} tokens", "n": n,
                "batch": batch, "heads": heads,
            }  # fmt: skip
            try:
                out = run(q, k, v)
            except torch.OutOfMemoryError:
                row["out_of_memory"] = True
            else:
                peak = torch.cuda.max_memory_allocated() - before - out.nbytes
                row["extra_mb"] = max(0, peak) / 2**20
                del out
            print(row)
            rows.append(row)
            del q, k, v
    return rows


def _flash(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return forward(q, k, v)[0]


if __name__ == "__main__":
    sys.exit(main())
