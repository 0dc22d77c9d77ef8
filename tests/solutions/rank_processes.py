"""Functions that run in n processes, each a rank of a group of torch.distributed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

# A server that has torch already; each rank is a copy of it.
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["torch", "solutions.ring_allreduce"])


def on_ranks(
    count: int,
    function: Callable[..., Any],
    *given: Any,
    limit_s: float = 120.0,
    backend: str = "gloo",
) -> list[Any]:
    """Run ``function(rank, *given)`` on each rank; return what each returned.

    A rank that killed itself returned ``None``; one that raised is raised here.
    """
    with tempfile.TemporaryDirectory() as folder:
        queue = _CONTEXT.SimpleQueue()
        processes = [
            _CONTEXT.Process(
                target=_rank,
                args=(function, r, count, f"{folder}/store", backend, given, queue),
                daemon=True,
            )
            for r in range(count)
        ]
        for process in processes:
            process.start()
        results: list[Any] = [None] * count
        waiting, due = set(range(count)), time.monotonic() + limit_s
        try:
            while waiting:
                if queue.empty():
                    gone = {r for r in waiting if processes[r].exitcode is not None}
                    killed = {
                        r for r in gone if processes[r].exitcode == -signal.SIGKILL
                    }
                    waiting -= killed
                    if gone - killed and queue.empty():
                        raise AssertionError(f"ranks {gone - killed} ended silently")
                    if time.monotonic() > due:
                        raise AssertionError(f"ranks {waiting} hang")
                    time.sleep(0.01)
                    continue
                rank, result, error = queue.get()
                if error:
                    raise AssertionError(f"rank {rank}: {error}")
                results[rank] = result
                waiting.discard(rank)
        finally:
            for process in processes:
                process.kill()
            for process in processes:
                process.join()
    return results


def _rank(
    function: Callable[..., Any],
    rank: int,
    count: int,
    store: str,
    backend: str,
    given: tuple[Any, ...],
    queue: Any,
) -> None:
    torch.set_num_threads(1)
    try:
        dist.init_process_group(
            backend,
            store=dist.FileStore(store, count),
            rank=rank,
            world_size=count,
            timeout=timedelta(seconds=60),
        )
        queue.put((rank, function(rank, *given), None))
    except BaseException:
        queue.put((rank, None, traceback.format_exc()))
    # Until all have answered: who leaves ends connections that others still use.
    Path(f"{store}-{rank}").touch()
    due = time.monotonic() + 20
    while time.monotonic() < due:
        if all(Path(f"{store}-{r}").exists() for r in range(count)):
            break
        time.sleep(0.02)
    os._exit(0)
