"""A small network around what averages its gradients, and how it is watched.

The learner's function is given the parameters before backward, and returns what is
called after it. Meanwhile it is counted how many gradients there are, and how many
bytes have been sent of those that could be.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch

from autograder.worker.entry import WrongReturn
from autograder.worker.in_flight import in_flight


def parameters_of(flat: torch.Tensor, widths: list[int]) -> list[torch.Tensor]:
    """Cut a flat tensor into the weights and biases of a chain of layers."""
    shapes: list[tuple[int, ...]] = []
    for inner, outer in pairwise(widths):
        shapes += [(inner, outer), (outer,)]
    sizes = [torch.Size(shape).numel() for shape in shapes]
    parts = flat.split(sizes)
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]


def loss_of(parameters: list[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """Send x (batch, widths[0]) through the layers; return a number."""
    for weight, bias in zip(parameters[::2], parameters[1::2], strict=True):
        x = torch.tanh(x @ weight + bias)
    return (x * torch.linspace(1, 2, x.shape[1], dtype=x.dtype)).sum()


def adapt_buckets(
    answer: Any, sizes: torch.Tensor, limit: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return which bucket each parameter is in, and which place it has there."""
    found = answer(sizes.tolist(), limit)
    if not isinstance(found, list) or not all(isinstance(one, list) for one in found):
        raise WrongReturn(
            "bucket_gradients is to return a list of buckets, each a list of "
            "parameters' numbers."
        )
    numbers = [number for bucket in found for number in bucket]
    if sorted(numbers) != list(range(len(sizes))):
        raise WrongReturn(
            f"the buckets hold the parameters {numbers}; wanted each of 0 to "
            f"{len(sizes) - 1} once."
        )
    bucket, place = torch.empty_like(sizes), torch.empty_like(sizes)
    for which, members in enumerate(found):
        for at, number in enumerate(members):
            bucket[number], place[number] = which, at
    return bucket, place


def adapt_averaging(answer: Any, *given: Any) -> torch.Tensor:
    """Go through some steps of training; return each step's gradients."""
    return _trained(answer, given, once=False)


def adapt_one_buffer(answer: Any, *given: Any) -> torch.Tensor:
    """Do so for an answer that allocates what it sends from once."""
    return _trained(answer, given, once=True)


def _trained(answer: Any, given: tuple[Any, ...], once: bool) -> torch.Tensor:
    x, flat, widths, limit = given
    parts = parameters_of(flat, widths.tolist())
    parameters = [torch.nn.Parameter(part.clone()) for part in parts]
    seen = _Seen(parameters, limit, once)
    for number, parameter in enumerate(parameters):
        parameter.register_post_accumulate_grad_hook(seen.gradient(number))
    finish: Callable[[], object] = answer(parameters, limit)
    if not callable(finish):
        raise WrongReturn(
            f"it returned {type(finish).__name__}; wanted a function, which is called "
            "after backward and waits for all buckets."
        )
    steps = []
    with in_flight(seen.message):
        for batch in x:
            for parameter in parameters:
                parameter.grad = None
            seen.begin()
            loss_of(list(parameters), batch).backward()
            seen.check()
            finish()
            if any(p.grad is None for p in parameters):
                raise WrongReturn("after finish() a parameter has no gradient.")
            grads = [p.grad.flatten() for p in parameters if p.grad is not None]
            steps.append(torch.cat(grads).clone())
    return torch.stack(steps)


class _Seen:
    """How many bytes have been sent at the time of each gradient."""

    def __init__(
        self, parameters: list[torch.nn.Parameter], limit: int, once: bool
    ) -> None:
        self.sizes = [p.numel() * p.element_size() for p in parameters]
        self.limit, self.step, self.once = limit, 0, once
        # By address, and held: so nothing else comes to lie there.
        self.memory: dict[int, torch.UntypedStorage] = {}

    def begin(self) -> None:
        """Begin a step."""
        self.step += 1
        self.came: list[int] = []
        self.sent = 0
        self.sent_at: list[int] = []

    def gradient(self, number: int) -> Callable[[torch.Tensor], None]:
        """Return a hook that notes a gradient, before the learner's own."""

        def hook(_: torch.Tensor) -> None:
            self.sent_at.append(self.sent)
            self.came.append(number)

        return hook

    def message(self, what: str, tensor: torch.Tensor) -> None:
        """Note a message."""
        if what == "all_reduce":
            self.sent += tensor.nbytes
            storage = tensor.untyped_storage()
            known = storage.data_ptr() in self.memory
            if self.once and self.step > 1 and not known:
                raise WrongReturn(
                    f"in step {self.step} a bucket leaves from memory of which the "
                    "step before knew nothing: the buffer is allocated once, before "
                    "the first step, and filled in each (torch.cat has `out`)."
                )
            self.memory[storage.data_ptr()] = storage
        if what == "wait" and len(self.came) < len(self.sizes):
            raise WrongReturn(
                "backward stands still until a bucket's sum is there: wait for all of "
                "them in finish()."
            )

    @property
    def _wanted(self) -> str:
        if self.step > 1:
            return (
                "In the step before all of them were: what the hooks count with must "
                "be at each step's begin what it was at the first one's."
            )
        return (
            "Wanted: each bucket of bucket_gradients (sizes and limit in bytes) begins "
            "its all_reduce, of all its float32, with async_op=True in the hook of its "
            "last gradient."
        )

    def check(self) -> None:
        """Ask that each bucket was on its way before the next gradient came.

        Raises:
            WrongReturn: it was not.
        """
        sent_at = [*self.sent_at[1:], self.sent]
        full, filled = 0, 0
        for at, number in enumerate(self.came):
            size = self.sizes[number]
            if filled and filled + size > self.limit:
                # It does not fit: what was there is a bucket, and full since before.
                full, filled = full + filled, 0
                if sent_at[at] < full:
                    raise WrongReturn(
                        f"in step {self.step}, when {at + 1} of {len(self.sizes)} "
                        f"gradients had come, {full:,} bytes were in full buckets, "
                        f"and {sent_at[at]:,} of them were on their way. {self._wanted}"
                    )
            filled += size
        if self.sent < sum(self.sizes):
            raise WrongReturn(
                f"in step {self.step}, after backward, {self.sent:,} of "
                f"{sum(self.sizes):,} bytes were on their way: every bucket "
                "is begun by a hook, the last one too, in every step."
            )
