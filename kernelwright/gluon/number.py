"""Numbers as a kernel has them in registers: one, or a block of them."""

from __future__ import annotations

import types
from typing import Any

import torch


class Number(torch.Tensor):
    """A tensor that divides as a GPU does, towards zero, and can be bitcast."""

    type = types.SimpleNamespace(layout=None)  # type: ignore[assignment]

    def to(self, dtype: torch.dtype, bitcast: bool = False) -> Any:  # type: ignore[override]
        """Convert, or take the same bits for another dtype."""
        return self.view(dtype) if bitcast else super().to(dtype)

    def __floordiv__(self, other: Any) -> Any:
        return torch.div(self, other, rounding_mode="trunc")

    def __mod__(self, other: Any) -> Any:
        return torch.fmod(self, other)


def number(value: Any) -> Any:
    """Make a Number of an int, a bool or a tensor."""
    return torch.as_tensor(value).as_subclass(Number)
