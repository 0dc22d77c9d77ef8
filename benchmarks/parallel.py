"""Training steps spread over two GPUs: ``python -m benchmarks.parallel``.

    python -m benchmarks.parallel --check         # exit 1 below a floor of this device
    python -m benchmarks.parallel --only-correct  # no timing; gloo without two GPUs
    python -m benchmarks.parallel --out FOLDER    # not into benchmarks/results

Each rank is a process with a GPU of its own; they meet over NCCL, with NVLink's
multicast off. A time is that of the slower rank, of some steps between two barriers.
The peer of bucketed gradients is torch's DistributedDataParallel, in the same
processes and rounds; of the MLP one GPU with all of it; of ring attention one GPU with
half of the heads, which is half of the work and sends nothing.

``overlap`` is the share of the messages' time that a step hides: 1 - (step - step
without messages) / messages alone.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn

from benchmarks import _command, _peers
from benchmarks._candidates import Candidate, Row, Times
from benchmarks._parallel_model import GatedMLP, Transformer
from solutions.flash_attention import flash_attention
from solutions.parallel import (
    DistributedDataParallel,
    ParallelMLP,
    join_tokens,
    ring_attention,
    split_tokens,
)

RANKS = 2
ROUNDS, STEPS = 5, 8
"""Rounds, and how many calls of each candidate are timed together in one."""

# Lowest ratio to the peer that is no regression, by device.
_FLOORS = {
    "ddp_ours": 0.97,
    "mlp_two": 1.7,
    "ring_two": 0.87,
    "ring_training_two": 0.95,
}
FLOORS = {"nvidia-h100-80gb-hbm3": _FLOORS, "nvidia-h200": _FLOORS}

Run = Callable[[], object]


class Sizes(NamedTuple):
    """Of all that is timed; those of a test are small."""

    layers: int = 12
    d_model: int = 1536
    d_ff: int = 6400
    batch: int = 8
    length: int = 1024
    mlp_tokens: int = 8192
    mlp_model: int = 4096
    mlp_ff: int = 11008
    heads: int = 8
    tokens: int = 131_072
    head_dim: int = 128


SMALL = Sizes(2, 32, 64, 2, 8, 12, 16, 24, 2, 64, 16)
FULL = Sizes()


def main() -> int:
    """Check, measure, store; return 0 if all is right and above its floor."""
    options = _command.command_line(__doc__).parse_args()
    return _command.run("parallel", options, check_values, measured, FLOORS)


def measured(options: argparse.Namespace) -> _command.Measured:
    """Time each group on two GPUs; refuse, by what is missing, where there are less."""
    found = torch.cuda.device_count()
    if found < RANKS:
        print(
            f"benchmarks.parallel wants {RANKS} GPUs of one machine, and found "
            f"{found}: nothing was timed, nothing stored."
        )
        return
    rows: list[Row] = []
    for name, todo in groups(FULL):
        times = on_two_gpus(name, [candidate.name for candidate in todo])
        rows += rows_of(todo, times)
        yield rows, {"ranks": RANKS}


def groups(sizes: Sizes) -> list[tuple[str, list[Candidate]]]:
    """Name what is timed together; the peer comes first."""
    work = 4.0 * sizes.heads * sizes.tokens**2 * sizes.head_dim / 2 / RANKS
    mlp = 18.0 * sizes.mlp_tokens * sizes.mlp_model * sizes.mlp_ff
    labels = {
        "ddp": {
            "ddp_torch": "torch's DistributedDataParallel",
            "ddp_alone": "a step without messages",
            "ddp_messages": "the messages alone",
            "ddp_ours": "`DistributedDataParallel`",
        },
        "mlp": {"mlp_one": "one GPU", "mlp_two": "`ParallelMLP`, two GPUs"},
        "ring": {
            "ring_bound": "half of the heads on one GPU",
            "ring_two": "`ring_attention`, two GPUs",
        },
        "ring_training": {
            "ring_training_bound": "half of the heads on one GPU, there and back",
            "ring_training_two": "`ring_attention`, two GPUs, there and back",
        },
    }
    flops = {"mlp": mlp, "ring": work, "ring_training": 3.5 * work}
    return [
        (
            group,
            [
                Candidate(
                    name, label, print, (), dtype="float32" if group == "ddp" else
                    "bfloat16", flops=flops.get(group, 0), peers=(next(iter(named)),),
                )
                for name, label in named.items()
            ],
        )
        for group, named in labels.items()
    ]  # fmt: skip


def rows_of(todo: Sequence[Candidate], times: Times) -> list[Row]:
    """Make a row of each candidate, and say what part of the messages is hidden."""
    rows = _peers.rows_of(todo, times)
    alone = {row["name"]: row["median_ms"] for row in rows}
    if "ddp_messages" in alone:
        for row in rows:
            if row["name"] in ("ddp_torch", "ddp_ours"):
                over = row["median_ms"] - alone["ddp_alone"]
                row["overlap"] = 1 - over / alone["ddp_messages"]
    return rows


# --- on the ranks -------------------------------------------------------------------


def on_two_gpus(group: str, names: Sequence[str]) -> Times:
    """Start the ranks, and return the milliseconds of each candidate and round."""
    os.environ["NCCL_NVLS_ENABLE"] = "0"
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(_time, (folder, group, list(names)), RANKS)
        found: Times = torch.load(Path(folder) / "times.pt")
    return found


def _meet(rank: int, folder: str, backend: str) -> torch.device:
    device = torch.device("cpu")
    if backend == "nccl":
        device = torch.device("cuda", rank)
        torch.cuda.set_device(device)
    dist.init_process_group(
        backend,
        init_method=f"file://{folder}/meeting",
        rank=rank,
        world_size=RANKS,
        device_id=device if backend == "nccl" else None,
    )
    return device


def _time(rank: int, folder: str, group: str, names: list[str]) -> None:
    device = _meet(rank, folder, "nccl")
    runs = RUNS[group](FULL, device)
    assert list(runs) == names, (list(runs), names)
    times: Times = {name: [] for name in names}
    for number in range(1 + ROUNDS):  # the first warms up
        for name, run in runs.items():
            ms = torch.tensor(_milliseconds(run), device=device)
            dist.all_reduce(ms, dist.ReduceOp.MAX)
            if number:
                times[name].append(float(ms))
    if rank == 0:
        torch.save(times, Path(folder) / "times.pt")
    dist.barrier()
    dist.destroy_process_group()


def _milliseconds(run: Run) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    run()
    dist.barrier()
    torch.cuda.synchronize()
    begin.record()
    for _ in range(STEPS):
        run()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / STEPS


def ddp_runs(sizes: Sizes, device: torch.device) -> dict[str, Run]:
    """Make steps of one transformer: torch's wrapper, none, messages alone, ours."""
    x = torch.randn(sizes.batch, sizes.length, sizes.d_model, device=device)

    def model() -> nn.Module:
        torch.manual_seed(0)
        return Transformer(sizes.layers, sizes.d_model, sizes.d_ff).to(device)

    def step(wrapped: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16):
            loss = wrapped(x).float().square().mean()
        loss.backward()
        optimizer.step()

    def stepping(wrapped: nn.Module) -> Run:
        # Fused wherever it is: the optimizer is no part of what is compared.
        fused = device.type == "cuda"
        made = torch.optim.AdamW(wrapped.parameters(), lr=1e-4, fused=fused)
        return partial(step, wrapped, made)

    ours = DistributedDataParallel(model())
    theirs = nn.parallel.DistributedDataParallel(model(), gradient_as_bucket_view=True)
    buckets = [torch.zeros_like(bucket.buffer) for bucket in ours._buckets]

    def messages() -> None:
        for handle in [dist.all_reduce(one, async_op=True) for one in buckets]:
            handle.wait()

    return {
        "ddp_torch": stepping(theirs),
        "ddp_alone": stepping(model()),
        "ddp_messages": messages,
        "ddp_ours": stepping(ours),
    }


def mlp_runs(sizes: Sizes, device: torch.device) -> dict[str, Run]:
    """Make forward and backward of a gated MLP: all on each GPU, and half on each."""
    kind = torch.bfloat16 if device.type == "cuda" else torch.float32
    shape = (sizes.mlp_tokens, sizes.mlp_model)
    torch.manual_seed(0)
    x = torch.randn(shape, device=device, dtype=kind, requires_grad=True)
    slope = torch.randn(shape, device=device, dtype=kind)
    whole = GatedMLP(sizes.mlp_model, sizes.mlp_ff).to(device, kind)
    torch.manual_seed(1)
    half = ParallelMLP(
        sizes.mlp_model, sizes.mlp_ff, gated=True, chunks=4, device=device, dtype=kind
    )

    def there_and_back(layer: nn.Module) -> Any:
        return torch.autograd.grad(layer(x), [x, *layer.parameters()], slope)

    return {
        "mlp_one": partial(there_and_back, whole),
        "mlp_two": partial(there_and_back, half),
    }


def ring_runs(
    sizes: Sizes, device: torch.device, *, training: bool = False
) -> dict[str, Run]:
    """Make causal attention: of half the heads, and of half the tokens in a ring."""
    rank, kind = dist.get_rank(), torch.bfloat16

    def drawn(heads: int) -> list[torch.Tensor]:
        shape = (1, heads, sizes.tokens, sizes.head_dim)
        return [torch.randn(shape, device=device, dtype=kind) for _ in range(4)]

    *whole, slope = drawn(sizes.heads // RANKS)
    own = [split_tokens(one, rank, RANKS) for one in drawn(sizes.heads)]
    *parts, own_slope = own
    if training:
        whole, parts = ([t.requires_grad_() for t in some] for some in (whole, parts))

    def bound() -> Any:
        out = flash_attention(*whole, causal=True)
        return torch.autograd.grad(out, whole, slope) if training else out

    def ring() -> Any:
        # Shapes are the same in each step; to compare them would wait for the host.
        out = ring_attention(*parts, causal=True, check=False)
        return torch.autograd.grad(out, parts, own_slope) if training else out

    name = "ring_training" if training else "ring"
    return {f"{name}_bound": bound, f"{name}_two": ring}


RUNS: dict[str, Callable[..., dict[str, Run]]] = {
    "ddp": ddp_runs,
    "mlp": mlp_runs,
    "ring": ring_runs,
    "ring_training": partial(ring_runs, training=True),
}


# --- right first --------------------------------------------------------------------


def check_values(device: str) -> None:
    """Hold gradients, the MLP and attention on two ranks against one process."""
    two = device == "cuda" and torch.cuda.device_count() >= RANKS
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(_check, (folder, "nccl" if two else "gloo"), RANKS)
    print(f"right on two {'GPUs' if two else 'processes'}: gradients, MLP, attention")


def _check(rank: int, folder: str, backend: str) -> None:
    device = _meet(rank, folder, backend)
    sizes = SMALL
    torch.manual_seed(0)
    plain = Transformer(sizes.layers, sizes.d_model, sizes.d_ff).to(device)
    torch.manual_seed(0)
    wrapped = DistributedDataParallel(
        Transformer(sizes.layers, sizes.d_model, sizes.d_ff).to(device),
        bucket_bytes=4096,
    )
    x = torch.randn(2 * RANKS, sizes.length, sizes.d_model, device=device)
    for _ in range(2):
        wrapped.zero_grad()
        wrapped(x.chunk(RANKS)[rank]).square().mean().backward()
    plain(x).square().mean().backward()
    for ours, whole in zip(wrapped.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, whole.grad, rtol=1e-3, atol=1e-5)
    torch.manual_seed(0)
    layer = ParallelMLP(16, 24, gated=True, chunks=3, device=device)
    gate_up = [torch.empty_like(layer.gate_up) for _ in range(RANKS)]
    dist.all_gather(gate_up, layer.gate_up.detach())
    gates, ups = zip(*(one.chunk(2) for one in gate_up), strict=True)
    downs = [torch.empty_like(layer.down.weight) for _ in range(RANKS)]
    dist.all_gather(downs, layer.down.weight.detach())
    tokens = x.view(-1, 16)
    hidden = F.silu(tokens @ torch.cat(gates).mT) * (tokens @ torch.cat(ups).mT)
    torch.testing.assert_close(
        layer(tokens).detach(), hidden @ torch.cat(downs, 1).mT, rtol=1e-3, atol=1e-4
    )
    qkv = torch.randn(3, 1, 2, 64, 16, device=device)
    dist.broadcast(qkv, 0)
    q, k, v = qkv
    out = ring_attention(*(split_tokens(t, rank, RANKS) for t in qkv), causal=True)
    every = [torch.empty_like(out) for _ in range(RANKS)]
    dist.all_gather(every, out)
    wanted = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.testing.assert_close(join_tokens(every), wanted, rtol=1e-2, atol=1e-2)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
