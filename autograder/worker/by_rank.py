"""A kernel that ranks launch together: what each of them is given, and the launch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autograder.worker.wire import Header


def launch_kernel(kernel: Any, values: Sequence[Any], header: Header) -> Any:
    """Launch a kernel, or its tracer: once, or once a rank and all at the same time.

    Returns:
        What the launch returns: of a tracer, its report.
    """
    launch = header["launch"]
    place = (tuple(launch["grid"]), tuple(launch["block"]), launch["shared"])
    count = launch.get("ranks", 0)
    if not count:
        return kernel[place](*values)
    given = list(zip(header["arguments"], values, strict=True))
    ranks = ([_of_rank(r, *each) for each in given] for r in range(count))
    return kernel.on_ranks[place](*ranks)


def _of_rank(rank: int, spec: Header, value: Any) -> Any:
    """Take a rank's part of an argument that is stacked by rank."""
    if spec["kind"] != "tensor":
        return value
    if spec.get("replicated"):
        return list(value)  # pointers to all ranks' parts
    part = value[rank]
    return part if part.dim() else part.item()
