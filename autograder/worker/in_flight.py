"""Messages that are under way, in a form that is the same in every run.

What is written or read too early is right or wrong by luck. Here a buffer whose sum, or
whose message, was not waited for holds NaN, and a sum whose buffer was used again is
lost, as it may be on any machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from autograder.worker.entry import WrongReturn
from autograder.worker.operations import unseen

Told = Callable[[str, torch.Tensor], None]
_NAMES = ("all_reduce", "isend", "irecv")


@contextmanager
def in_flight(told: Told) -> Iterator[None]:
    """Put what can be seen through in the place of torch's asynchronous messages.

    Args:
        told: is called with what begins (``all_reduce``, ``isend``, ``irecv``) or is
            waited for (``wait``), and its tensor.
    """
    real = {name: getattr(dist, name) for name in _NAMES}
    there: list[_Sum] = []

    def all_reduce(
        tensor: torch.Tensor, *how: Any, async_op: bool = False, **named: Any
    ) -> Any:
        if not async_op:
            return real["all_reduce"](tensor, *how, **named)
        told("all_reduce", tensor)
        with unseen():
            summed = tensor.detach().clone()
        real["all_reduce"](summed, *how, **named)
        made = _Sum(tensor.detach(), summed, told)
        for other in there:
            other.lost |= _overlap(other.tensor, made.tensor)
        there.append(made)
        return made

    def isend(tensor: torch.Tensor, *to: Any, **named: Any) -> Any:
        told("isend", tensor)
        with unseen():
            sent = tensor.detach().clone()
        return _Sent(tensor.detach(), sent, real["isend"](sent, *to, **named), told)

    def irecv(tensor: torch.Tensor, *source: Any, **named: Any) -> Any:
        told("irecv", tensor)
        with unseen():
            coming = torch.empty_like(tensor)
        work = real["irecv"](coming, *source, **named)
        tensor.detach().fill_(torch.nan)
        return _Coming(tensor.detach(), coming, work, told)

    put = {"all_reduce": all_reduce, "isend": isend, "irecv": irecv}
    try:
        for name in _NAMES:
            for module in (dist, distributed_c10d):
                setattr(module, name, put[name])
        yield
    finally:
        for name in _NAMES:
            for module in (dist, distributed_c10d):
                setattr(module, name, real[name])


class _Sum:
    """A sum under way."""

    def __init__(self, tensor: torch.Tensor, summed: torch.Tensor, told: Told) -> None:
        self.tensor, self.summed, self.told = tensor, summed, told
        self.done = self.lost = False
        tensor.fill_(torch.nan)
        # Arithmetic leaves a NaN as it is, and would not be seen.
        self._first = torch.finfo(tensor.dtype).min
        tensor[(0,) * tensor.dim()] = self._first

    def wait(self) -> bool:
        """Put the sum where it was asked for, unless that was used again meanwhile."""
        if not self.done:
            self.done = True
            self.told("wait", self.tensor)
            if not self.lost:
                if self._is_as_it_was():
                    self.tensor.copy_(self.summed)
                else:  # written meanwhile: partly the one, partly the other
                    self.tensor.fill_(torch.nan)
            # Once it is through, what is done with the buffer is no concern of it.
            self.tensor = self.tensor.new_empty(0)
        return True

    def _is_as_it_was(self) -> bool:
        first, *others = self.tensor.flatten().tensor_split([1])
        return bool((first == self._first).all() and others[0].isnan().all())

    def is_completed(self) -> bool:
        """Say whether it was waited for: nobody can count on more."""
        return self.done


class _Sent:
    """A message that leaves."""

    def __init__(
        self, tensor: torch.Tensor, sent: torch.Tensor, work: Any, told: Told
    ) -> None:
        self.tensor, self.sent, self.work = tensor, sent, work

    def wait(self) -> bool:
        """Wait; what was sent must stand there still."""
        self.work.wait()
        # Bits, since what was not waited for is NaN, which equals nothing.
        if self.tensor.numpy().tobytes() != self.sent.numpy().tobytes():
            raise WrongReturn(
                "a tensor was written while it was being sent: what arrives is partly "
                "the one, partly the other. Receive into another, or wait first."
            )
        return True


class _Coming:
    """A message that comes."""

    def __init__(
        self, tensor: torch.Tensor, coming: torch.Tensor, work: Any, told: Told
    ) -> None:
        self.tensor, self.coming, self.work, self.told = tensor, coming, work, told

    def wait(self) -> bool:
        """Put what came where it was asked for."""
        self.told("wait", self.tensor)
        self.work.wait()
        self.tensor.copy_(self.coming)
        return True


def _overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Say whether two contiguous tensors have memory in common."""
    begin, end = one.data_ptr(), one.data_ptr() + one.nbytes
    return begin < other.data_ptr() + other.nbytes and other.data_ptr() < end
