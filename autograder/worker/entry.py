"""What a worker asks of a kind of answer: to be checked, called, traced.

The counterpart of ``autograder.judge.kinds``, which the supervisor asks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch

from autograder.worker.operations import operations_seen
from autograder.worker.tensors import Guarded, dtype_name
from autograder.worker.wire import Header


class MissingName(Exception):
    """The cell does not define what the exercise asks for."""


class WrongReturn(Exception):
    """A function returned something that is not what the exercise asks for."""


@dataclass(frozen=True)
class Given:
    """A case's arguments, laid out in memory.

    Args:
        values: all of them, in order.
        placed: the tensors among them, each between guard zones.
        files: the learner's cells, by the file that holds each.
    """

    values: list[Any]
    placed: list[Guarded]
    files: Mapping[str, str]

    @staticmethod
    def place(
        header: Header, blobs: list[bytearray], files: Mapping[str, str] | None = None
    ) -> Given:
        """Build the arguments in order."""
        values: list[Any] = []
        placed: list[Guarded] = []
        for spec in header["arguments"]:
            if spec["kind"] == "int":
                values.append(int(spec["value"]))
            elif spec["kind"] == "float":
                values.append(float.fromhex(spec["value"]))
            else:
                guarded = Guarded.place(spec, blobs[spec["blob"]], header["device"])
                placed.append(guarded)
                values.append(guarded.tensor)
        return Given(values, placed, files or {})

    def outputs(self, header: Header) -> list[torch.Tensor]:
        """Return those that the answer was to write."""
        wanted = {spec["name"] for spec in header["outputs"]}
        return [each.tensor for each in self.placed if each.name in wanted]


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
    """How one kind of answer is called.

    Attributes:
        noun: what the cell must define, for a message.
    """

    noun: ClassVar[str] = "function"

    def prepare(self) -> str:
        """Get ready to run it, before any of the learner's code is here.

        Returns:
            What this machine lacks, and the mend; '' if nothing.
        """
        return ""

    def fits(self, value: Any) -> bool:
        """Say whether what the cell defined can be called this way."""
        return callable(value)

    @abstractmethod
    def call(self, answer: Any, given: Given, header: Header) -> Made:
        """Run an answer on a case's arguments, to its end."""

    def trace(self, answer: Any, given: Given, header: Header) -> Header:
        """Run it once more, watched, and tell what it did."""
        raise NotImplementedError


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


def watched(header: Header) -> AbstractContextManager[set[str]]:
    """Watch torch's operations where the exercise names some that it does without."""
    nothing: set[str] = set()
    return operations_seen() if header.get("operations") else nullcontext(nothing)


def _kind(item: Any) -> str:
    """Name what is no plain tensor: its type, or what sort of tensor it is."""
    if type(item) is torch.Tensor:
        return f"{str(item.layout).removeprefix('torch.')} Tensor"
    return type(item).__name__[:100]
