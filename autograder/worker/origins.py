"""Where the numbers come from that Triton kernels are given, and that come back.

A kernel may be given the inputs, what kernels wrote, and memory that says nothing of
the inputs: one value throughout, counting numbers, or copies of the inputs' own values.
What else it is given, something other than a kernel has computed. It is told by the
values alone, so that it does not matter how they were made; they are looked at on this
side of the boundary, so that it is no wall against one who changes the grader.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from autograder.worker.operations import unseen
from autograder.worker.wire import Header

# A learner passes a scale or two; numbers handed over one at a time are an output.
_MOST_NUMBERS = 16
_FEW = 4
_WHOLE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass
class _Known:
    """Memory that is accounted for: what it held when it was last looked at."""

    storage: torch.UntypedStorage  # held, so that its address is not given out again
    bytes: torch.Tensor
    made: bool = False


class Origins:
    """Follows the memory of one call from launch to launch.

    Args:
        inputs: the tensors that the answer was called with.
        outputs: how many elements it is to return. Torch may work out a share of that
            beforehand, such as a number a row: it is no answer.
    """

    def __init__(self, inputs: Iterable[torch.Tensor], outputs: int) -> None:
        self.trouble: Header = {}
        self._few = max(_FEW, outputs // 8)
        self._known: dict[int, _Known] = {}
        self._given: list[torch.Tensor] = []
        self._made: dict[int, torch.Tensor] = {}
        self._numbers: set[float] = set()
        for tensor in inputs:
            self._look(tensor)
            self._given.append(tensor.detach().clone().reshape(-1))

    @unseen()
    def before(self, kernel: str, arguments: Mapping[str, Any]) -> None:
        """Look at what a kernel is given."""
        for name, value in arguments.items():
            for part in _parts(value):
                if isinstance(part, float):
                    self._numbers.add(part)
                elif isinstance(part, torch.Tensor) and not self._accounted(part):
                    self._found("argument", kernel, name)
        if len(self._numbers) > _MOST_NUMBERS:
            self._found("numbers", kernel, "")

    @unseen()
    def after(self, arguments: Mapping[str, Any]) -> None:
        """Look at what a kernel has written."""
        for value in arguments.values():
            for part in _parts(value):
                if not isinstance(part, torch.Tensor) or not _bytes(part).numel():
                    continue
                key = part.untyped_storage().data_ptr()
                if key not in self._known or self._changed(part) is not None:
                    self._look(part, made=True)
                    self._made[key] = _whole(part).clone()

    def returned(self, tensors: Iterable[torch.Tensor]) -> None:
        """Look at what comes back: what a kernel left, or its values elsewhere."""
        for tensor in tensors:
            known = self._known.get(tensor.untyped_storage().data_ptr())
            if known and known.made and self._changed(tensor) is None:
                continue
            if not self._harmless(tensor.detach().reshape(-1), [*self._made.values()]):
                self._found("returned", "", "")

    def _found(self, kind: str, kernel: str, name: str) -> None:
        self.trouble = self.trouble or {"kind": kind, "kernel": kernel, "name": name}

    def _look(self, tensor: torch.Tensor, made: bool = False) -> None:
        storage = tensor.untyped_storage()
        before = self._known.get(storage.data_ptr())
        made = made or (before is not None and before.made)
        self._known[storage.data_ptr()] = _Known(storage, _bytes(tensor).clone(), made)

    def _changed(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Return where memory differs from what it last held; None: nowhere."""
        known = self._known[tensor.untyped_storage().data_ptr()]
        now = _bytes(tensor)
        if torch.equal(known.bytes, now):
            return None
        whole = now.numel() // tensor.element_size() * tensor.element_size()
        rows = (now[:whole] != known.bytes[:whole]).view(-1, tensor.element_size())
        return rows.any(dim=1)

    def _accounted(self, tensor: torch.Tensor) -> bool:
        """Say whether memory holds nothing but what a kernel may be given."""
        if not _bytes(tensor).numel():
            return True
        values = _whole(tensor)
        if tensor.untyped_storage().data_ptr() in self._known:
            changed = self._changed(tensor)
            if changed is None:
                return True
            values = values[changed]
        self._look(tensor)
        few = values.numel() <= self._few
        return few or self._harmless(values, [*self._given, *self._made.values()])

    def _harmless(self, values: torch.Tensor, known: list[torch.Tensor]) -> bool:
        """Say whether values are one value, or count up, or are among known ones."""
        if values.dtype is torch.bool or not values.numel() or values.is_complex():
            return True
        bits = values.contiguous().view(_WHOLE[values.element_size()])
        if bool((bits == bits[0]).all()):
            return True
        wide = values.double()
        steps = wide[1:] - wide[:-1]
        if bool((steps == steps[0]).all()):
            return True
        told = wide[torch.isfinite(wide) & (wide != 0)]
        same = [t.to(values.dtype).double() for t in known if not t.is_complex()]
        return bool(same) and bool(torch.isin(told, torch.cat(same)).all())


def _parts(value: Any) -> Iterator[Any]:
    """Give an argument's tensors and numbers, those of a tuple among them."""
    if isinstance(value, (tuple, list)):
        for part in value:
            yield from _parts(part)
        return
    # A descriptor and a view of another type both hold their tensor so.
    base = getattr(value, "base", None)
    yield base if isinstance(base, torch.Tensor) else value


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """View all memory behind a tensor as bytes."""
    storage = tensor.untyped_storage()
    return tensor.detach().new_empty(0, dtype=torch.uint8).set_(storage)


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    """View all memory behind a tensor as elements of its type."""
    size = tensor.element_size()
    held = _bytes(tensor)
    return held[: held.numel() // size * size].view(tensor.dtype)
