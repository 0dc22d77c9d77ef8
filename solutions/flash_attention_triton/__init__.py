"""Attention in Triton: forward, backward, decode over a KV cache; Gluon on Hopper.

    out = softmax(scale * q k^T + mask) v

    forward           4 n m d FLOPs a head, and no n * m matrix in memory
    backward         10 n m d FLOPs a head; what was not stored is computed again, and
                    every run gives the same bits
    decode_attention  the KV cache read once: bound by memory

fp16, bf16 and fp32; head dims 1 to 256; grouped heads; any lengths; bool and additive
masks, key padding, causal in both alignments, windows, dropout that the backward
draws again. CUDA tensors run on their GPU. CPU tensors run under Triton's interpreter
(``TRITON_INTERPRET=1``, which kernelwright sets where there is no GPU): right, and
thousands of times slower, for reading and for tests. ``solutions.flash_attention``
puts autograd and a plain fallback around this.

The rungs, in the order in which the chapter climbs them, each one exercise:

    tiled.py      one function absorbs a tile of keys; a program walks over all
    causal.py     no query looks ahead, and tiles that nobody sees are not read
    fast.py       whole tiles apart from edges, powers of two, tuned tiles
    training.py   gradients from the log-sum-exp, dQ by atomics
    grouped.py    query heads share a KV head, queries come after a cache
    pieces.py     one token against a long cache, cut into pieces
    split.py      the pieces put together by their log-sum-exp

and what the functions below launch: ``forward.py`` and ``backward.py`` with every
option (``tiles.py`` and ``visible.py`` are what the two share), ``decode.py``, and
``hopper.py`` and, for head_dim 64, ``hopper_64.py``, forward by TMA, wgmma and warps
with roles; ``hopper_backward.py``, backward by the same means in one pass.

When not to use it: for short sequences (512 and fewer) the launches cost more than the
n * m matrix would; with a mask that hides most of the keys at random, a block-sparse
kernel skips what this one computes; and on a chip newer than Hopper its own tensor
memory wants other kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch

from kernelwright.operators import operator, recorded
from solutions.flash_attention_triton.backward import backward_triton
from solutions.flash_attention_triton.decode import decode_attention
from solutions.flash_attention_triton.forward import forward_triton
from solutions.flash_attention_triton.options import (
    Causal,
    Options,
    Window,
    read_options,
)
from solutions.flash_attention_triton.visible import dropout_mask

try:  # Gluon is an experimental part of Triton: it may be absent, or have moved
    from solutions.flash_attention_triton import hopper, hopper_64, hopper_backward
except ImportError as reason:
    _NO_GLUON: str | None = f"this Triton has not the Gluon that it needs ({reason})"
else:
    _NO_GLUON = None

__all__ = ["backward", "decode_attention", "dropout_mask", "forward"]

Kernel = Literal["triton", "gluon"]


@recorded(varying=("seed",))
def forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    mask: torch.Tensor | None = None,
    key_padding_mask: torch.Tensor | None = None,
    causal: Causal = False,
    scale: float | None = None,
    window: Window = None,
    dropout_p: float = 0.0,
    seed: int | None = None,
    kernel: Kernel | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attend: ``out = softmax(scale * q k^T + mask) v``, and each row's log-sum-exp.

    Args:
        q: (batch, heads, q_len, head_dim); fp16, bf16 or fp32; head_dim up to 256.
        k: (batch, kv_heads, kv_len, head_dim), kv_heads a divisor of heads: query
            head h reads KV head ``h // (heads // kv_heads)``.
        v: as k.
        mask: bool (true takes part) or floating (added to the scaled products); any
            shape that broadcasts to (batch, heads, q_len, kv_len).
        key_padding_mask: bool (batch, kv_len), **true is padding**, as
            ``nn.MultiheadAttention`` has it.
        causal: true lets query i see keys j <= i, as torch's ``is_causal``;
            ``"bottom-right"`` lets the last query see the last key.
        scale: 1 / sqrt(head_dim) when absent.
        window: (left, right) keys beside a query's own that it sees, ``None`` for no
            bound; a number stands for both. Aligned as ``causal``.
        dropout_p: share of the weights that is dropped; the rest is scaled up.
        seed: what the dropped weights are drawn from.
        kernel: ``triton`` or ``gluon`` (Hopper; head_dim 64 or 128, 16 bits, full or
            causal attention); the faster of those that can, when absent.

    Returns:
        out, q's shape and dtype, and lse, float32 (batch, heads, q_len): the natural
        logarithm. A row that sees no key has out 0 and lse -inf.

    Raises:
        TypeError, ValueError: what does not fit, named.

    Cost: 4 * batch * heads * q_len * kv_len * head_dim FLOPs, half if causal;
    q, k, v read and out written once, and nothing else of note in memory.

    Source: Dao, *FlashAttention-2* (2023), section 3.1.
    """
    options = read_options(
        q, k, v, mask=mask, key_padding_mask=key_padding_mask, causal=causal,
        scale=scale, window=window, dropout_p=dropout_p, seed=seed,
    )  # fmt: skip
    out, lse = attention(q, k, v, *options, kernel)
    return out, lse


@recorded(varying=("seed",))
def backward(
    grad: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    *,
    mask: torch.Tensor | None = None,
    key_padding_mask: torch.Tensor | None = None,
    causal: Causal = False,
    scale: float | None = None,
    window: Window = None,
    dropout_p: float = 0.0,
    seed: int | None = None,
    kernel: Kernel | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the gradients dq, dk and dv of ``forward``, with equal bits every run.

    Every sum is added in one order, which is fixed. On Hopper that costs something:
    ``gluon`` is 1.75 to 1.88 times as fast as FlashAttention-2 on an H200, and would be
    1.86 to 2.0 times if dq were added as programs come. ``triton`` adds nothing in
    memory, and computes seven products where five are due: 1.15 to 1.21 times.

    Args:
        grad: the gradient of out, of its shape and dtype.
        q: as ``forward`` had it.
        k: likewise.
        v: likewise.
        out: what ``forward`` returned.
        lse: likewise.
        mask: every option as ``forward`` had it.
        key_padding_mask: likewise.
        causal: likewise.
        scale: likewise.
        window: likewise.
        dropout_p: likewise.
        seed: likewise; another seed drops others, and the gradient is wrong.
        kernel: ``triton`` or ``gluon`` (Hopper; head_dim 64 or 128, 16 bits, full or
            causal attention); the faster of those that can, when absent. Whichever
            forward took. Their bits differ.

    Returns:
        dq, dk, dv, of the shape and dtype of q, k, v.

    Raises:
        TypeError, ValueError: what does not fit, named.

    Cost: 10 * batch * heads * q_len * kv_len * head_dim FLOPs due, half if causal;
    beside the gradients 4 bytes a query, or with ``gluon`` 4 * (head_dim + 2).

    Source: Dao, *FlashAttention-2* (2023), section 3.1.2.
    """
    options = read_options(
        q, k, v, mask=mask, key_padding_mask=key_padding_mask, causal=causal,
        scale=scale, window=window, dropout_p=dropout_p, seed=seed,
    )  # fmt: skip
    for name, tensor in (("grad", grad), ("out", out)):
        if tensor.shape != q.shape or tensor.dtype != q.dtype:
            raise ValueError(
                f"{name} is {tensor.dtype} {tuple(tensor.shape)}; wanted q's "
                f"{q.dtype} {tuple(q.shape)}."
            )
    if lse.shape != q.shape[:3] or lse.dtype != torch.float32:
        raise ValueError(
            f"lse is {lse.dtype} {tuple(lse.shape)}; wanted what forward returned, "
            f"float32 {tuple(q.shape[:3])}."
        )
    found: tuple[torch.Tensor, torch.Tensor, torch.Tensor] = attention_backward(
        grad, q, k, v, out, lse, *options, kernel
    )
    return found


@operator("attention", varying=("seed",))
def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float,
    first: int,
    last: int,
    mask: torch.Tensor | None,
    padding: torch.Tensor | None,
    dropout_p: float,
    seed: int,
    kernel: str | None,
    drawn: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attend, with options as ``Options`` has them: out and each row's log-sum-exp.

    ``drawn`` is the seed where a compiled program draws it: a number on the CPU.
    """
    seed = seed if drawn is None else int(drawn)
    options = Options(scale, first, last, mask, padding, dropout_p, seed)
    if _wrong_in_interpreter(q):
        out, lse = forward_triton(*_ready(q.float(), k.float(), v.float()), options)
        return out.to(q.dtype), lse
    q, k, v = _ready(q, k, v)
    if _by_gluon(kernel, lambda: hopper.refuses(q, k, v, options)):
        short = q.shape[3] == 64
        attend = hopper_64.forward_gluon_64 if short else hopper.forward_gluon
        return attend(q, k, v, options)
    return forward_triton(q, k, v, options)


@operator("attention_backward", varying=("seed",))
def attention_backward(
    grad: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    scale: float,
    first: int,
    last: int,
    mask: torch.Tensor | None,
    padding: torch.Tensor | None,
    dropout_p: float,
    seed: int,
    kernel: str | None,
    drawn: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the gradients of q, k and v."""
    seed = seed if drawn is None else int(drawn)
    options = Options(scale, first, last, mask, padding, dropout_p, seed)
    if _wrong_in_interpreter(q):
        wide = (t.float() for t in (grad, q, k, v))
        dq, dk, dv = backward_triton(*_ready(*wide), out.float(), lse, options)
        return dq.to(q.dtype), dk.to(q.dtype), dv.to(q.dtype)
    grad, q, k, v = _ready(grad, q, k, v)
    if _by_gluon(kernel, lambda: hopper_backward.refuses(grad, q, k, v, options)):
        return hopper_backward.backward_gluon(grad, q, k, v, out, lse, options)
    return backward_triton(grad, q, k, v, out, lse, options)


@attention.register_fake
def _(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *options: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    lse = q.new_empty(q.shape[:3], dtype=torch.float32)
    return q.new_empty(q.shape), lse


@attention_backward.register_fake
def _(
    grad: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *rest: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _by_gluon(kernel: str | None, refuses: Callable[[], str | None]) -> bool:
    """Choose between the kernels; one that is named must be able to."""
    if kernel not in (None, "triton", "gluon"):
        raise ValueError(f"no kernel {kernel!r}; wanted triton, gluon or None.")
    if kernel == "triton":
        return False
    reason = _NO_GLUON or refuses()
    if kernel == "gluon" and reason:
        raise ValueError(f"kernel='gluon' cannot do this: {reason}. Leave kernel away.")
    return reason is None


def _ready(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Copy what the kernels cannot read: they step by one along a head."""
    return tuple(t if t.stride(-1) == 1 else t.contiguous() for t in tensors)


def _wrong_in_interpreter(q: torch.Tensor) -> bool:
    """Say whether bf16 would run under the interpreter, whose bf16 is wrong."""
    return q.device.type == "cpu" and q.dtype == torch.bfloat16
