"""What a worker does with each kind of answer: check it, call it, trace it.

The counterpart of ``autograder.kinds``, which the supervisor asks. A request's header
says which entry is meant.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from math import prod
from typing import Any, ClassVar

import torch

from autograder.worker.launches import counted
from autograder.worker.operations import operations_seen, told
from autograder.worker.origins import Origins
from autograder.worker.tensors import Guarded, dtype_name
from autograder.worker.wire import Header


@dataclass(frozen=True)
class Made:
    """What a call made.

    Args:
        tensors: the outputs, in their order.
        facts: what else there is to say, under the names that the reply carries.
        described: of what was returned, each item as it is; ``None`` where the
            outputs are buffers that were given.
    """

    tensors: list[torch.Tensor]
    facts: Header = field(default_factory=dict)
    described: list[Header] | None = None


class Entry(ABC):
    """How one kind of answer is called."""

    noun: ClassVar[str]

    @abstractmethod
    def fits(self, value: Any) -> bool:
        """Say whether what the cell defined can be called this way."""

    @abstractmethod
    def call(
        self, answer: Any, values: list[Any], placed: Sequence[Guarded], header: Header
    ) -> Made:
        """Run an answer on a case's arguments, to its end."""

    @abstractmethod
    def trace(
        self,
        answer: Any,
        header: Header,
        blobs: list[bytearray],
        files: Mapping[str, str],
    ) -> Header:
        """Run it once more, watched, and tell what it did."""


class Kernel(Entry):
    """A kernel in CUDA C++, launched; its outputs are among its arguments."""

    noun = "kernel"

    def fits(self, value: Any) -> bool:
        """Ask for what a compiled kernel has."""
        return hasattr(value, "signature")

    def call(
        self, answer: Any, values: list[Any], placed: Sequence[Guarded], header: Header
    ) -> Made:
        """Launch it and wait for its end."""
        launch = header["launch"]
        answer[tuple(launch["grid"]), tuple(launch["block"]), launch["shared"]](*values)
        finish(header["device"])
        wanted = {spec["name"] for spec in header["outputs"]}
        return Made([g.tensor for g in placed if g.name in wanted])

    def trace(
        self,
        answer: Any,
        header: Header,
        blobs: list[bytearray],
        files: Mapping[str, str],
    ) -> Header:
        """Launch it on the emulator with every access recorded."""
        from autograder.worker.traced import trace_kernel

        return trace_kernel(answer, header, blobs)


class Function(Entry):
    """A Python function, called; it returns its outputs."""

    noun = "function"

    def fits(self, value: Any) -> bool:
        """Ask for anything that can be called."""
        return callable(value)

    def call(
        self, answer: Any, values: list[Any], placed: Sequence[Guarded], header: Header
    ) -> Made:
        """Call it, with its Triton launches counted and torch's operations watched."""
        sizes = (prod(spec["shape"]) for spec in header["outputs"])
        origins = Origins((g.tensor for g in placed), sum(sizes))
        with counted(origins) as seen, _watched(header) as operations:
            returned = answer(*values)
        finish(header["device"])
        made, described = describe_returned(returned)
        if seen.count:
            origins.returned(made)
        facts = {"launches": seen.count, "origins": origins.trouble}
        facts |= {"operations": told(operations), "kernels": seen.kernels}
        return Made(made, facts, described)

    def trace(
        self,
        answer: Any,
        header: Header,
        blobs: list[bytearray],
        files: Mapping[str, str],
    ) -> Header:
        """Call it with its Triton kernels watched in the interpreter."""
        from autograder.worker.guarded_triton import trace_triton

        return trace_triton(answer, header, blobs, files)


ENTRIES: dict[str, Entry] = {"kernel": Kernel(), "function": Function()}


def finish(device: str) -> None:
    """Wait for a GPU: a kernel runs behind the launch, and its faults must show."""
    if device != "cpu":
        torch.cuda.synchronize()


def describe_returned(value: Any) -> tuple[list[torch.Tensor], list[Header]]:
    """List what was returned, and describe each item without trusting it."""
    items = list(value) if isinstance(value, (tuple, list)) else [value]
    described: list[Header] = []
    tensors: list[torch.Tensor] = []
    for item in items[:16]:
        if type(item) is torch.Tensor and item.layout is torch.strided:
            described.append(
                {
                    "type": "Tensor",
                    "dtype": dtype_name(item.dtype),
                    "shape": list(item.shape),
                    "device": item.device.type,
                }
            )
            tensors.append(item.detach().resolve_conj().resolve_neg())
        else:
            described.append({"type": _kind(item)})
    return tensors, described


def _watched(header: Header) -> AbstractContextManager[set[str]]:
    """Watch torch's operations where the exercise names some that it does without."""
    nothing: set[str] = set()
    return operations_seen() if header.get("operations") else nullcontext(nothing)


def _kind(item: Any) -> str:
    """Name what is no plain tensor: its type, or what sort of tensor it is."""
    if type(item) is torch.Tensor:
        return f"{str(item.layout).removeprefix('torch.')} Tensor"
    return type(item).__name__[:100]
