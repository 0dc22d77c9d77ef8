"""The kinds of answers that a worker can call; a request's header says which."""

from __future__ import annotations

from math import prod
from typing import Any

import torch

from autograder.worker.by_rank import launch_kernel
from autograder.worker.calls import counted_by_adapter
from autograder.worker.circuit import Circuit
from autograder.worker.entry import Entry, Given, Made, describe_returned, watched
from autograder.worker.launches import counted
from autograder.worker.operations import told
from autograder.worker.origins import Origins
from autograder.worker.printed import launches_seen, trace_launches
from autograder.worker.ranks import Ranks
from autograder.worker.wire import Header


class Kernel(Entry):
    """A kernel in CUDA C++, launched; its outputs are among its arguments."""

    noun = "kernel"

    def fits(self, value: Any) -> bool:
        """Ask for what a compiled kernel has."""
        return hasattr(value, "signature")

    def call(self, answer: Any, given: Given, header: Header) -> Made:
        """Launch it and wait for its end."""
        launch_kernel(answer, given.values, header)
        _finish(header["device"])
        return Made(given.outputs(header))

    def trace(self, answer: Any, given: Given, header: Header) -> Header:
        """Launch it on the emulator with every access recorded."""
        from autograder.worker.traced import trace_kernel

        return trace_kernel(answer, given.values, header)


class Function(Entry):
    """A Python function, called; it returns its outputs."""

    def call(self, answer: Any, given: Given, header: Header) -> Made:
        """Call it, with its Triton launches counted and torch's operations watched."""
        counted_by_adapter.clear()
        sizes = (prod(spec["shape"]) for spec in header["outputs"])
        origins = Origins((g.tensor for g in given.placed), sum(sizes))
        with (
            counted(origins) as seen,
            watched(header) as operations,
            launches_seen() as printed,
        ):
            returned = answer(*given.values)
        _finish(header["device"])
        if header["fills"]:
            return Made(given.outputs(header))
        made, described = describe_returned(returned)
        if seen.count:
            origins.returned(made)
        facts = {"launches": seen.count, "origins": origins.trouble}
        facts |= {"operations": told(operations), "kernels": seen.kernels or printed}
        facts["undefined"] = seen.undefined
        if counted_by_adapter:
            facts["counted"] = dict(counted_by_adapter)
        return Made(made, facts, described)

    def trace(self, answer: Any, given: Given, header: Header) -> Header:
        """Call it with its kernels watched: Triton's in its interpreter, or CUDA's."""
        if header.get("printed"):
            return trace_launches(answer, given.values)
        from autograder.worker.guarded_triton import trace_triton

        return trace_triton(answer, given.values, given.files)


ENTRIES: dict[str, Entry] = {
    "kernel": Kernel(),
    "function": Function(),
    "ranks": Ranks(),
    "circuit": Circuit(),
}


def _finish(device: str) -> None:
    """Wait for a GPU: a kernel runs behind the launch, and its faults must show."""
    if device != "cpu":
        torch.cuda.synchronize()
