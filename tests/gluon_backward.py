"""The backward kernel for Hopper, on the machine that needs no GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch

from benchmarks._flash_attention_triton_errors import standard
from kernelwright.gluon import Descriptor, Machine
from solutions.flash_attention_triton import hopper_backward
from solutions.flash_attention_triton.options import Causal, Options, read_options

NAMES = ("dq", "dk", "dv")
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


def given_for(size: Size, head_dim: int = 128, low: bool = False) -> Given:
    """Draw, and attend in float64; low: no logit is above -80."""
    batch, heads, kv_heads, q_len, kv_len, causal = size
    torch.manual_seed(q_len + kv_len)
    q, grad = torch.randn(2, batch, heads, q_len, head_dim)
    k, v = torch.randn(2, batch, kv_heads, kv_len, head_dim)
    if low:
        # A product of -9 a number of the head, divided by its root.
        q, k = 3 + 0.1 * q, (-3 + 0.1 * k) * (128 / head_dim) ** 0.5
    options = read_options(
        q, k, v, mask=None, key_padding_mask=None, causal=causal, scale=None,
        window=None, dropout_p=0.0, seed=None,
    )  # fmt: skip
    out, lse = standard(q.double(), k.double(), v.double(), causal=causal)
    return Given(q, k, v, grad, out.float(), lse.float(), causal, options)


class Emulated:
    """What takes the kernel's place at its launch: the machine that needs no GPU."""

    def __init__(self, machine: Machine, resident: int) -> None:
        self.machine, self.resident = machine, resident
        self.turns = torch.empty(0)

    def __getitem__(self, grid: tuple[int]) -> Callable[..., None]:
        def launch(*given: Any, num_warps: int, **known: Any) -> None:
            *_, self.turns = (x for x in given if isinstance(x, torch.Tensor))
            name = "_backward_kernel"
            self.machine.launch(name, grid[0], self.resident, *given, **known)

        return launch


def _described(
    tensor: torch.Tensor, rows: int, columns: int | None = None
) -> Descriptor:
    """Describe float32, which the TMA engine would need another layout for."""
    return Descriptor(tensor, [1, 1, rows, columns or tensor.shape[3]])


def assembly(machine: Machine, text: str, _: str, args: Any, **__: Any) -> None:
    """Do what the kernel has in PTX: wait for a turn, and add four numbers at once."""
    if "ld.acquire" in text:
        at, wanted = args
        machine.threads.until(lambda: int(at.data[int(at.at)]) == int(wanted), "a turn")
        return
    assert "red.relaxed.gpu.global.add.v4.f32 [$8]" in text
    # The first pointer of each four; a thread's four are two columns of two rows.
    values, to = args[0].view(torch.float32), args[1]
    rows, columns = torch.arange(64)[:, None], torch.arange(values.shape[1])
    place = torch.as_tensor(to.at) + columns % 2 + 2 * (rows // 8 % 2)
    with machine.threads.change():
        to.data.index_add_(0, place.flatten(), torch.Tensor(values).flatten())


def emulated(
    machine: Machine, given: Given, resident: int = 3, side: int = 16
) -> dict[str, torch.Tensor]:
    """Call ``backward_gluon``; return dq, dk, dv and the turns taken.

    Args:
        machine: made of the kernel's module, with ``assembly``.
        given: of any size.
        resident: how many programs run at a time.
        side: how many planes begin together.
    """
    g, kernel = given, Emulated(machine, resident)
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)  # what is allocated begins as NaN
    try:
        with (
            patch.object(hopper_backward, "_backward_kernel", kernel),
            patch.object(hopper_backward.hopper, "described", _described),
            patch.object(hopper_backward, "planes_beside", lambda *_: side),
        ):
            found = hopper_backward.backward_gluon(
                g.grad, g.q, g.k, g.v, g.out, g.lse, g.options
            )
    finally:
        torch.use_deterministic_algorithms(before)
    return dict(zip(NAMES, found, strict=True)) | {"turns": kernel.turns}


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
