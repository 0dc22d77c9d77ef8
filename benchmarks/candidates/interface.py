"""What a module of candidates offers: ``CANDIDATES``, a sequence of proposals.

A module beside this one that has ``CANDIDATES`` is found by ``__main__``; it registers
nowhere. Importing it must not need a GPU. What a proposal does with its tensors has two
parts, so that what is not timed is not timed:

    given = proposal.prepare(shape)     tensors on the GPU, once for all who use them
    run = proposal.run(given)           not timed: buffers, descriptors, a graph
    results = run()                     timed: the same work as solution's and peer's
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from solutions.flash_attention_triton.options import Causal

Given = Any
"""What ``prepare`` returns; only the proposal's own functions look inside."""

Results = Mapping[str, torch.Tensor]
"""Tensors by name: ``out`` and ``lse``, or ``dq``, ``dk`` and ``dv``."""

Maker = Callable[[Given], Callable[[], Any]]
"""Makes what is called again and again; what it returns is ``Results`` or ignored."""


@dataclass(frozen=True)
class Shape:
    """Attention of one size, as it is drawn for a check or for timing.

    Args:
        batch: sequences.
        heads: of q.
        kv_heads: of k and v; a divisor of heads.
        q_len: queries of a head.
        kv_len: keys of a head.
        head_dim: elements of a query.
        causal: as the solution's ``causal``.
        largest: q is scaled until the largest logit is this; None leaves it normal.
        dtype: of all inputs.
    """

    batch: int
    heads: int
    kv_heads: int
    q_len: int
    kv_len: int
    head_dim: int
    causal: Causal = False
    largest: float | None = None
    dtype: torch.dtype = torch.bfloat16

    @property
    def label(self) -> str:
        """Say the shape in one word, which also names its row."""
        sizes = (self.batch, self.heads, self.kv_heads, self.q_len, self.kv_len)
        words = ["x".join(map(str, (*sizes, self.head_dim)))]
        words.append({False: "full", True: "causal"}.get(self.causal, "bottom-right"))
        words += [f"logits {self.largest:g}"] if self.largest is not None else []
        words += ["fp16"] if self.dtype == torch.float16 else []
        return ", ".join(words)


@dataclass(frozen=True)
class Proposal:
    """A kernel that may replace a solution.

    Args:
        name: of its own among all modules; what the command line selects it by.
        replaces: dotted name of the solution's function, which names the group that
            is timed together: proposals that replace the same share its timing.
        predicted: by label of a timed shape, the solution's time over its own.
        because: why, in a sentence or two.
        prepare: draws the tensors of a shape; the same for all that replace the same.
        run: makes the candidate's call, which returns ``Results``.
        solution: makes today's call, which returns the same, or tensors in that order.
        peer: makes the library's call.
        peer_name: what the peer is called in the table, such as ``cuDNN``.
        exact: returns the float64 results, and by name the largest absolute error that
            is right. Twice the error of the formula in the inputs' dtype and one
            rounding is what the solutions' own checks allow.
        checked: shapes that must be right before anything is timed.
        timed: shapes that are timed; held against the solution's results before.
        flops: due at a shape, whatever a kernel really computes.
    """

    name: str
    replaces: str
    predicted: Mapping[str, float]
    because: str
    prepare: Callable[[Shape], Given]
    run: Maker
    solution: Maker
    peer: Maker
    peer_name: str
    exact: Callable[[Given], tuple[Results, Mapping[str, float]]]
    checked: Sequence[Shape]
    timed: Sequence[Shape]
    flops: Callable[[Shape], float]
