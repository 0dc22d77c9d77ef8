"""The public function: options checked, a kernel chosen, gradients by chapter 10."""

from __future__ import annotations

from typing import Any, Literal, cast, get_args

import torch
from torch.autograd.function import once_differentiable

from solutions.flash_attention.plain import attend_plain
from solutions.flash_attention.rungs import RUNGS, RungName, launch
from solutions.flash_attention_triton import backward, forward
from solutions.flash_attention_triton.options import (
    Causal,
    Options,
    Window,
    read_options,
)

KernelName = Literal["forward", "causal", "wmma", "mma", "triton", "gluon", "plain"]


def flash_attention(
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
    kernel: KernelName | None = None,
) -> torch.Tensor:
    """Attend without a matrix of scores: ``softmax(scale * q k^T + mask) v``.

    On a GPU: fp16, bf16 and fp32, head dims up to 256, forward and backward. **On a
    CPU, and for float64, plain torch stands in**: right for every option, and with the
    matrix of scores in memory.

    Args:
        q: (batch, heads, q_len, head_dim).
        k: (batch, kv_heads, kv_len, head_dim), kv_heads a divisor of heads: query
            head h reads head ``h // (heads // kv_heads)``.
        v: as k.
        mask: bool (true takes part) or floating (added to the scaled scores), of a
            shape that broadcasts to (batch, heads, q_len, kv_len). No gradient flows
            into it.
        key_padding_mask: bool (batch, kv_len), **true is padding**, as in
            ``nn.MultiheadAttention``.
        causal: true lets query i see keys j <= i, as torch's ``is_causal``;
            ``"bottom-right"`` lets the last query see the last key.
        scale: 1 / sqrt(head_dim) when absent.
        window: (left, right), how many keys beside its own a query sees, ``None`` for
            no bound; a number stands for both. Aligned as ``causal``.
        dropout_p: share of the weights that is dropped; the rest is scaled up.
        seed: what is dropped is drawn from it, in backward again; drawn from torch's
            generator when absent.
        kernel: the one to run. ``triton`` and ``gluon`` are chapter 10's; ``mma``,
            ``wmma``, ``causal`` and ``forward`` this chapter's rungs, each with limits
            that its error names; ``plain`` is torch. When absent, the fastest for the
            machine and the options. Only ``triton``, ``gluon``, ``mma`` and ``plain``
            have gradients; those of ``gluon`` and ``mma`` come from the faster of
            chapter 10's backward kernels that can.

    Returns:
        out, q's shape, dtype and device. A query that sees no key gets zeros.

    Raises:
        TypeError, ValueError: what does not fit, named, and how to mend it.

    Cost: 4 batch heads q_len kv_len head_dim FLOPs, half if causal; q, k, v read and
    out written once, and beside them 4 bytes a query. Backward 10 for the 4.

    Source: Dao et al., *FlashAttention* (2022), section 3; Dao, *FlashAttention-2*
    (2023), section 3.1.
    """
    if kernel is not None and kernel not in get_args(KernelName):
        raise ValueError(
            f"flash_attention: no kernel {kernel!r}; wanted "
            f"{', '.join(get_args(KernelName))}, or none."
        )
    if isinstance(q, torch.Tensor):
        q, k, v = _as_autocast(q, k, v)
    if dropout_p > 0.0 and seed is None:
        seed = int(torch.randint(2**31, ()))
    checked = [t.float() if _is_double(t) else t for t in (q, k, v)]
    told: dict[str, Any] = {
        "mask": mask,
        "key_padding_mask": key_padding_mask,
        "causal": causal,
        "scale": scale,
        "window": window,
        "dropout_p": dropout_p,
        "seed": seed,
    }
    options = read_options(checked[0], checked[1], checked[2], **told)
    if _is_double(q) and kernel not in (None, "plain"):
        raise ValueError(
            f"flash_attention: kernel={kernel!r} has no float64; leave kernel= away, "
            "and plain torch computes it."
        )
    if kernel == "plain" or (kernel is None and _needs_plain(q)):
        return attend_plain(q, k, v, options)
    result: torch.Tensor = _Attention.apply(q, k, v, told, options, kernel)
    return result


def _is_double(tensor: object) -> bool:
    return isinstance(tensor, torch.Tensor) and tensor.dtype == torch.float64


def _needs_plain(q: torch.Tensor) -> bool:
    return q.device.type != "cuda" or q.dtype == torch.float64


def _as_autocast(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Cast to autocast's dtype inside a region, as torch's attention does."""
    device = tensors[0].device.type
    if not torch.amp.is_autocast_available(device):
        return tensors
    if not torch.is_autocast_enabled(device):
        return tensors
    dtype = torch.get_autocast_dtype(device)
    return tuple(
        t if _is_double(t) or not t.is_floating_point() else t.to(dtype)
        for t in tensors
    )


class _Attention(torch.autograd.Function):
    """One of the kernels forward, chapter 10's backward."""

    @staticmethod
    def forward(
        ctx: Any,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        told: dict[str, Any],
        options: Options,
        kernel: KernelName | None,
    ) -> torch.Tensor:
        if kernel in RUNGS:
            out, lse = launch(cast(RungName, kernel), q, k, v, options)
        else:
            chosen = cast(Literal["triton", "gluon"] | None, kernel)
            out, lse = forward(q, k, v, **told, kernel=chosen)
        if lse is None and any(ctx.needs_input_grad[:3]):
            raise ValueError(
                f"flash_attention: kernel={kernel!r} keeps nothing for a backward "
                "pass; leave kernel= away, or call under torch.no_grad()."
            )
        if lse is not None:
            ctx.save_for_backward(q, k, v, out, lse)
        # Gluon's forward takes more than its backward: there the faster is chosen.
        ctx.told = told | {"kernel": "triton" if kernel == "triton" else None}
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        dq, dk, dv = backward(grads[0].contiguous(), *ctx.saved_tensors, **ctx.told)
        return dq, dk, dv, None, None, None
