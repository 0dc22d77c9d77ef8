"""The forward kernels for Hopper, on the machine that needs no GPU."""

from __future__ import annotations

from typing import Any

import torch

from solutions.flash_attention_triton.hopper import LOG2E
from solutions.flash_attention_triton.options import UNBOUNDED, Causal, read_options
from tests.gluon_machine import Descriptor, Machine, Pointer

Heads = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def emulated(
    machine: Machine, heads: Heads, causal: Causal, knobs: dict[str, Any]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Run every program of ``_forward_kernel`` on float32 tensors; return out and lse.

    Args:
        machine: made of the kernel's module.
        heads: q, k and v, (batch, heads, length, head_dim).
        causal: as ``flash_attention`` takes it.
        knobs: the kernel's constants that a launch chooses, in small letters:
            ``consumers``, ``block_n``, ``stages``, ``in_turn``, and what else it has.
    """
    q, k, v = heads
    batch, many, q_len, width = q.shape
    options = read_options(
        q, k, v, mask=None, key_padding_mask=None, causal=causal, scale=None,
        window=None, dropout_p=0.0, seed=None,
    )  # fmt: skip
    out, lse = torch.full_like(q, torch.nan), torch.full(q.shape[:3], torch.nan)
    chosen = {name.upper(): value for name, value in knobs.items()}
    rows, keys = [1, 1, 64, width], [1, 1, chosen["BLOCK_N"], width]
    bounded = options.bounded[1]
    machine.launch(
        "_forward_kernel", -(-q_len // (64 * chosen["CONSUMERS"])) * batch * many, 2,
        Descriptor(q, rows), Descriptor(k, keys), Descriptor(v, keys),
        Descriptor(out, rows), Pointer(lse.view(-1)), many, many // k.shape[1], q_len,
        k.shape[2], options.last if bounded else UNBOUNDED, options.scale * LOG2E,
        D=width, BOUNDED=bounded, REGISTERS=0, **chosen,
    )  # fmt: skip
    return out, lse
