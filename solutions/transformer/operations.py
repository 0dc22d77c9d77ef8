"""Which operations of a model are the course's own, and which are torch's."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Literal

import torch

Choice = Literal["plain", "ours"]

NAMES = ("norm", "rotary", "attention", "decode", "output", "mlp", "loss")
# What runs at torch's speed without a GPU: its launcher goes to torch there. The
# others run thread by thread, on the emulator or in Triton's interpreter.
FAST_ON_CPU = ("rotary", "attention", "output", "mlp", "loss")


@dataclass(frozen=True)
class Operations:
    """Names for each operation of a model who computes it: ``plain`` torch or ours.

    Args:
        norm: ``F.rms_norm``, or chapter 5's ``rms_norm``.
        rotary: lines of PyTorch, or one kernel that splits heads and turns them.
        attention: scaled_dot_product_attention, or chapter 10's kernels.
        decode: the same for a few tokens over a KV cache, or a cache cut into pieces.
        output: attention's projection and an addition, or chapter 12's product that
            adds in its registers.
        mlp: three products and two passes, or chapter 12's gated MLP; experts are
            chapter 14's, or a loop over them.
        loss: all logits and ``F.cross_entropy``, or a part of them at a time.

    Raises:
        ValueError: a choice that is neither.
    """

    norm: Choice = "plain"
    rotary: Choice = "plain"
    attention: Choice = "plain"
    decode: Choice = "plain"
    output: Choice = "plain"
    mlp: Choice = "plain"
    loss: Choice = "plain"

    def __post_init__(self) -> None:
        for field in fields(self):
            if (got := getattr(self, field.name)) not in ("plain", "ours"):
                raise ValueError(
                    f"Operations: {field.name} is {got!r}; wanted 'plain' or 'ours'."
                )

    @classmethod
    def of(cls, ours: Iterable[str]) -> Operations:
        """Take the named operations from the course, and the others from torch."""
        chosen = tuple(ours)
        if unknown := set(chosen) - set(NAMES):
            raise ValueError(
                f"Operations: no operation is called {', '.join(sorted(unknown))}; "
                f"there are {', '.join(NAMES)}."
            )
        return replace(cls(), **dict.fromkeys(chosen, "ours"))

    @classmethod
    def plain(cls) -> Operations:
        """Take everything from torch."""
        return cls()

    @classmethod
    def ours(cls) -> Operations:
        """Take everything from the course."""
        return cls.of(NAMES)

    @classmethod
    def for_device(cls, device: torch.device | str) -> Operations:
        """Take the course's kernels on a GPU, and plain torch elsewhere.

        Without a GPU the kernels run on an emulator, or in an interpreter: right, and
        thousands of times slower than torch on the same CPU.
        """
        return cls.ours() if torch.device(device).type == "cuda" else cls.plain()

    def __str__(self) -> str:
        ours = [name for name in NAMES if getattr(self, name) == "ours"]
        if len(ours) == len(NAMES):
            return "every operation ours"
        if not ours:
            return "plain torch (the kernels are for a GPU)"
        return f"ours: {', '.join(ours)}; plain: the others"
