"""Seeing torch's functions as Python calls them, those too that reach no dispatcher."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_iter

ASKED = frozenset(
    (
        *("dim", "size", "stride", "numel", "element_size", "storage_offset"),
        *("is_contiguous", "is_floating_point", "is_complex", "is_neg", "is_conj"),
        *("data_ptr", "get_device", "__get__"),
    )
)
"""What is only asked of a tensor, and answered by what calls of a kind share."""
READ = frozenset(
    ("tolist", "numpy", "__array__", "__dlpack__", "item", "__bool__", "__float__")
)
"""What takes values out of a tensor."""


class Onlooker(TorchFunctionMode):
    """Notes which functions are called while it is entered.

    Args:
        harmless: names of those that are not noted, unless a tensor comes out.
        only: names of those that are noted, if not all others.
    """

    def __init__(
        self, harmless: Collection[str] = (), only: Collection[str] | None = None
    ) -> None:
        super().__init__()
        self.seen: list[str] = []
        self._harmless = harmless
        self._only = only

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Let torch do it, and note it."""
        found = function(*args, **(kwargs or {}))
        name = getattr(function, "__name__", "")
        concerned = tree_iter((args, kwargs, found))
        if self._only is not None:
            noted = name in self._only
        else:
            noted = name not in self._harmless or isinstance(found, torch.Tensor)
        if noted and any(isinstance(one, torch.Tensor) for one in concerned):
            self.seen.append(name)
        return found
