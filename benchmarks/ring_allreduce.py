"""All-reduce beside NCCL: ``python -m benchmarks.ring_allreduce``.

    python -m benchmarks.ring_allreduce --check         # exit 1 below a floor
    python -m benchmarks.ring_allreduce --only-correct  # no timing; also without a GPU
    python -m benchmarks.ring_allreduce --out FOLDER    # not into benchmarks/results

A process a GPU, which this starts itself, and two GPUs at least. Both sum fp32 in place
and take turns, round after round, in the same processes. A call's time is that of the
slowest rank. GB/s is bus bandwidth: the 2 (n - 1) / n of a message that each rank must
send, over the time. NVLS, where NVLink's switch adds, is off for NCCL.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from benchmarks import _command, _peers
from benchmarks._candidates import Row, Times
from solutions.ring_allreduce import all_reduce

SIZES = tuple(2**k for k in (13, 15, 17, 20, 24, 28, 30))
"""Of a message, in bytes."""
ROUNDS, WARM_UPS, LIMIT_S = 7, 2, 60
OURS, NCCL = "", "_nccl"

# Lowest ratio to NCCL that is no regression, by device: two of them.
_FLOORS = {
    "all_reduce_8192": 1.5,
    "all_reduce_32768": 1.5,
    "all_reduce_131072": 1.5,
    "all_reduce_1048576": 1.5,
    "all_reduce_16777216": 0.95,
    "all_reduce_268435456": 0.95,
    "all_reduce_1073741824": 0.95,
}
FLOORS = {"nvidia-h100-80gb-hbm3": _FLOORS, "nvidia-h200": _FLOORS}


def main() -> int:
    """Check, measure, store; return 0 if all is right and above its floor."""
    options = _command.command_line(__doc__).parse_args()
    return _command.run("ring_allreduce", options, check_values, measured, FLOORS)


def measured(options: argparse.Namespace) -> _command.Measured:
    """Time both on every size; nothing where there is one GPU."""
    ranks = torch.cuda.device_count()
    if ranks < 2:
        print(
            f"benchmarks.ring_allreduce needs two GPUs or more, and here is {ranks}: "
            "nothing was timed, nothing stored"
        )
        return
    rows: list[Row] = []
    for nbytes, times in times_on_ranks(ranks).items():
        rows += rows_of(nbytes, ranks, times)
        yield rows, {"ranks": ranks}


def rows_of(nbytes: int, ranks: int, times: Times) -> list[Row]:
    """Make a row of each candidate's times, and print it."""
    todo = _peers.each(
        {NCCL: ("NCCL", _nothing), OURS: ("`all_reduce`", _nothing)},
        f"all_reduce_{nbytes}", f"{{}}, {in_words(nbytes)}, {ranks} GPUs", (),
        2 * (ranks - 1) * nbytes // ranks, facts={"n": nbytes // 4},
        peers=(f"all_reduce_{nbytes}{NCCL}",),
    )  # fmt: skip
    return _peers.rows_of(list(todo), times)


def in_words(nbytes: int) -> str:
    """Write a size as tables do: ``8 KiB``."""
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if nbytes >= 2**power:
            return f"{nbytes / 2**power:g} {unit}"
    return f"{nbytes} B"


def times_on_ranks(ranks: int) -> dict[int, Times]:
    """Return the milliseconds of a call, by size, candidate and round."""
    told: dict[str, Times] = on_ranks(ranks, "time")
    return {int(nbytes): times for nbytes, times in told.items()}


def check_values(device: str) -> None:
    """Hold sums against torch.distributed's, and ranks' bits against each other's."""
    # One GPU is shared by two processes: right there, too, and no speed.
    ranks = max(2, torch.cuda.device_count()) if device == "cuda" else 3
    on_ranks(ranks, "check" if device == "cuda" else "check_cpu")
    print(f"right on {device}: all_reduce of {ranks} ranks")


def on_ranks(ranks: int, task: str) -> Any:
    """Do a task on each rank, a process each; return what rank 0 found."""
    os.environ["NCCL_NVLS_ENABLE"] = "0"
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(_rank, (ranks, task, folder), nprocs=ranks)
        return json.loads(Path(folder, "found.json").read_text(encoding="utf-8"))


def _rank(rank: int, ranks: int, task: str, folder: str) -> None:
    """Be a rank: join the group, do the task, and let rank 0 write what it found."""
    gpus = torch.cuda.device_count()
    # NCCL wants a GPU for each rank.
    backend = "cpu:gloo,cuda:nccl" if task == "time" else "gloo"
    if task != "check_cpu":
        torch.cuda.set_device(rank % gpus)
    dist.init_process_group(
        backend, store=dist.FileStore(f"{folder}/store", ranks), rank=rank,
        world_size=ranks, timeout=timedelta(seconds=LIMIT_S),
    )  # fmt: skip
    found: Any = None
    if task == "time":
        found = {nbytes: _timed(nbytes) for nbytes in SIZES}
    else:
        _check("cpu" if task == "check_cpu" else "cuda")
    if rank == 0:
        Path(folder, "found.json").write_text(json.dumps(found), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


def _check(device: str) -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for nbytes in (4, 2**13, 2**20 + 4, 2**24 + 12):
        x = torch.randn(nbytes // 4, generator=torch.Generator().manual_seed(rank))
        wanted = x.clone()
        dist.all_reduce(wanted)
        all_reduce(got := x.to(device))
        got = got.cpu()
        eps = ranks * torch.finfo(torch.float32).eps
        torch.testing.assert_close(got, wanted, rtol=eps, atol=4 * eps)
        dist.broadcast(of_first := got.clone(), 0)
        assert torch.equal(of_first, got), f"rank {rank} has other bits than rank 0"


def _timed(nbytes: int) -> Times:
    """Time both on one size, in turn; as many calls on each rank."""
    x = torch.zeros(nbytes // 4, device="cuda")
    # About as long for each size: 20 us a call, or its bytes at 300 GB/s.
    calls = max(5, int(0.05 / max(20e-6, nbytes / 300e9)))
    todo: dict[str, Callable[[], object]] = {
        f"all_reduce_{nbytes}{NCCL}": lambda: dist.all_reduce(x),
        f"all_reduce_{nbytes}{OURS}": lambda: all_reduce(x),
    }
    times: Times = {name: [] for name in todo}
    for number in range(WARM_UPS + ROUNDS):
        for name, run in todo.items():
            ms = _slowest(_time_of(run, calls))
            if number >= WARM_UPS:
                times[name].append(ms)
    return times


def _time_of(run: Callable[[], object], calls: int) -> float:
    """Return the milliseconds of a call among many, on this rank's stream."""
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    run()
    torch.cuda.synchronize()
    dist.barrier(device_ids=[torch.cuda.current_device()])
    first.record()
    for _ in range(calls):
        run()
    last.record()
    last.synchronize()
    return first.elapsed_time(last) / calls


def _slowest(ms: float) -> float:
    every = torch.tensor([ms])
    dist.all_reduce(every, dist.ReduceOp.MAX)
    return float(every)


def _nothing() -> None:
    """Stand for what other processes ran."""


if __name__ == "__main__":
    sys.exit(main())
