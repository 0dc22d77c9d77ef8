"""Run a function in n processes of one gloo group, and collect what each returns."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

LIMIT_S = 60.0


def on_ranks(count: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Return what each rank returned; an exception is returned as it was raised.

    One that has ended by itself gives an ``EOFError``; one that has not answered in
    time fails the test.
    """
    torch.set_num_threads(1)  # a fork does not take a pool's threads along
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        pipes, processes = [], []
        for rank in range(count):
            here, there = context.Pipe(duplex=False)
            process = context.Process(
                target=_be, args=(rank, count, folder, there, function, arguments)
            )
            process.start()
            there.close()
            pipes.append(here)
            processes.append(process)
        until = time.monotonic() + LIMIT_S
        try:
            found = []
            for rank, pipe in enumerate(pipes):
                if not pipe.poll(max(0.0, until - time.monotonic())):
                    pytest.fail(f"rank {rank} of {count} has not answered")
                try:
                    found.append(pipe.recv())
                except EOFError as error:
                    found.append(error)
            return found
        finally:
            for process in processes:
                process.kill()
                process.join()


def _be(
    rank: int,
    count: int,
    folder: str,
    pipe: Connection,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    meeting = f"file://{Path(folder) / 'meeting'}"
    dist.init_process_group(
        "gloo", meeting, timedelta(seconds=LIMIT_S), world_size=count, rank=rank
    )
    try:
        found: Any = function(*arguments)
    except Exception as error:
        found = type(error)(str(error))
    pipe.send(found)
    time.sleep(LIMIT_S)  # an end would break what the others are at


def values(tensors: Any) -> Any:
    """Return tensors as nested lists would be: detached, of memory of their own."""
    if isinstance(tensors, torch.Tensor):
        return tensors.detach().double().numpy().copy()
    if isinstance(tensors, dict):
        return {name: values(one) for name, one in tensors.items()}
    if isinstance(tensors, (list, tuple)):
        return [values(one) for one in tensors]
    return tensors
