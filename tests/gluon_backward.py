"""The backward kernel for Hopper, on the machine that needs no GPU."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from benchmarks._flash_attention_triton_errors import standard
from solutions.flash_attention_triton.hopper_backward import LOG2E
from solutions.flash_attention_triton.hopper_backward_ends import (
    finish_kernel,
    prepare_kernel,
)
from solutions.flash_attention_triton.options import Causal, Options, read_options
from tests.gluon_machine import Descriptor, Machine, Pointer

NAMES = ("dq", "dk", "dv")
D = 128
Size = tuple[int, int, int, int, int, Causal]
"""batch, heads, kv_heads, q_len, kv_len, causal"""


@dataclass(frozen=True)
class Given:
    """Tensors of a size, float32, and what attention made of them."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    grad: torch.Tensor
    out: torch.Tensor
    lse: torch.Tensor
    causal: Causal
    options: Options


def given_for(size: Size, low: bool = False) -> Given:
    """Draw, and attend in float64; low: no logit is above -80."""
    batch, heads, kv_heads, q_len, kv_len, causal = size
    torch.manual_seed(q_len + kv_len)
    q, grad = torch.randn(2, batch, heads, q_len, D)
    k, v = torch.randn(2, batch, kv_heads, kv_len, D)
    if low:
        q, k = 3 + 0.1 * q, -3 + 0.1 * k
    options = read_options(
        q, k, v, mask=None, key_padding_mask=None, causal=causal, scale=None,
        window=None, dropout_p=0.0, seed=None,
    )  # fmt: skip
    out, lse = standard(q.double(), k.double(), v.double(), causal=causal)
    return Given(q, k, v, grad, out.float(), lse.float(), causal, options)


def emulated(
    machine: Machine, given: Given, resident: int = 3
) -> dict[str, torch.Tensor]:
    """Launch as ``backward_gluon`` does; return dq, dk, dv and the turns taken.

    Args:
        machine: made of the kernel's module.
        given: of any size.
        resident: how many programs run at a time.
    """
    q, k, v, grad, options = given.q, given.k, given.v, given.grad, given.options
    batch, heads, q_len = q.shape[:3]
    kv_heads, kv_len = k.shape[1:3]
    tiles = batch * heads * -(-q_len // 64)
    stats = torch.full((tiles, 128), torch.nan)
    sums = torch.full(((tiles + 1) * 64 * D,), torch.nan)
    turns = torch.full((tiles + 1,), -1, dtype=torch.int32)
    prepare_kernel[(tiles,)](
        given.out, grad, given.lse, stats, sums, turns, *grad.stride()[:3], heads,
        q_len, D=D,
    )  # fmt: skip
    dq, dk, dv = (torch.full_like(t, torch.nan) for t in (q, k, v))

    def described(tensor: torch.Tensor) -> Descriptor:
        return Descriptor(tensor, [1, 1, 64, D])

    machine.launch(
        "_backward_kernel", -(-kv_len // 128) * batch * kv_heads, resident,
        *map(described, (q, k, v, grad)), Descriptor(stats, [1, 128]), described(dk),
        described(dv), Pointer(sums), Pointer(turns), batch, heads, heads // kv_heads,
        q_len, kv_len, options.last, options.scale, options.scale * LOG2E,
        BOUNDED=options.bounded[1],
    )  # fmt: skip
    finish_kernel[(tiles,)](sums, dq, q_len, options.scale, D=D)
    return {"dq": dq, "dk": dk, "dv": dv, "turns": turns}


def worst(given: Given, found: dict[str, torch.Tensor]) -> dict[str, float]:
    """Return the largest error of each gradient, of what is largest in it.

    Where one key has all the weight dq and dk are 0, but for roundings: hence 0.1.
    """
    right = gradients(given.q, given.k, given.v, given.grad, given.causal)
    return {
        name: float((found[name].double() - r).abs().max() / r.abs().max().clamp(0.1))
        for name, r in right.items()
    }


def gradients(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, grad: torch.Tensor,
    causal: Causal, dtype: torch.dtype = torch.float64,
) -> dict[str, torch.Tensor]:  # fmt: skip
    """Let torch differentiate the formula in a dtype; rows that see nothing give 0."""
    leaves = [t.to(dtype).requires_grad_() for t in (q, k, v)]
    out, _ = standard(*leaves, causal=causal)
    found = torch.autograd.grad(out, leaves, grad.to(dtype))
    return dict(zip(NAMES, found, strict=True))
