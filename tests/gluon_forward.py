"""The forward kernels for Hopper, on the machine that needs no GPU."""

from __future__ import annotations

from typing import Any

import torch

from kernelwright.gluon import Descriptor, Machine
from solutions.flash_attention_triton.hopper import LOG2E
from solutions.flash_attention_triton.options import UNBOUNDED, Causal, read_options

Heads = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def emulated(
    machine: Machine, heads: Heads, causal: Causal, consumers: int, block_n: int,
    **constants: Any,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Run every program of ``_forward_kernel`` on float32 tensors; return out and lse.

    Args:
        machine: made of the kernel's module.
        heads: q, k and v, (batch, heads, length, head_dim).
        causal: as ``flash_attention`` takes it.
        consumers: of a program, of 64 queries each.
        block_n: keys of a tile.
        constants: what the kernel has beside ``BOUNDED``.
    """
    q, k, v = heads
    batch, many, q_len, width = q.shape
    options = read_options(
        q, k, v, mask=None, key_padding_mask=None, causal=causal, scale=None,
        window=None, dropout_p=0.0, seed=None,
    )  # fmt: skip
    out, lse = torch.full_like(q, torch.nan), torch.full(q.shape[:3], torch.nan)
    rows, keys = [1, 1, 64, width], [1, 1, block_n, width]
    bounded = options.bounded[1]
    machine.launch(
        "_forward_kernel", -(-q_len // (64 * consumers)) * batch * many, 2,
        Descriptor(q, rows), Descriptor(k, keys), Descriptor(v, keys),
        Descriptor(out, rows), lse, many, many // k.shape[1], q_len,
        k.shape[2], options.last if bounded else UNBOUNDED, options.scale * LOG2E,
        BOUNDED=bounded, **constants,
    )  # fmt: skip
    return out, lse
