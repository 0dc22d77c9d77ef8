"""The public function: options checked, a kernel chosen, gradients by chapter 10."""

from __future__ import annotations

from typing import Any, Literal, cast, get_args

import torch

from kernelwright.operators import autocast, operator, recorded
from solutions.flash_attention.plain import attend_plain
from solutions.flash_attention.rungs import RUNGS, RungName, launch
from solutions.flash_attention_triton import attention, attention_backward
from solutions.flash_attention_triton.options import (
    Causal,
    Options,
    Window,
    read_options,
)

KernelName = Literal["forward", "causal", "wmma", "mma", "triton", "gluon", "plain"]
_KERNELS = get_args(KernelName)


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
    drawn = None
    plain = kernel == "plain" or (kernel is None and _needs_plain(q))
    if dropout_p > 0.0 and seed is None:
        drawn = torch.randint(2**31, ())
        if plain or not torch.compiler.is_compiling():
            # Read here; a compiled program hands it over as it is.
            seed, drawn = int(drawn), None
    # Plain torch computes with the seed, which kernels take as it is.
    attend = _attend_in_full if plain and dropout_p > 0.0 else _attend
    return attend(
        q, k, v, mask, key_padding_mask, causal, scale, window, dropout_p, seed or 0,
        kernel, drawn,
    )  # fmt: skip


def _attend_in_full(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    key_padding_mask: torch.Tensor | None,
    causal: Causal,
    scale: float | None,
    window: Window,
    dropout_p: float,
    seed: int,
    kernel: KernelName | None,
    drawn: torch.Tensor | None,
) -> torch.Tensor:
    if kernel is not None and kernel not in _KERNELS:
        raise ValueError(
            f"flash_attention: no kernel {kernel!r}; wanted {', '.join(_KERNELS)}, or "
            "none."
        )
    if isinstance(q, torch.Tensor):
        q, k, v = autocast(q, k, v)
    checked = [t.float() if _is_double(t) else t for t in (q, k, v)]
    options = read_options(
        *checked, mask=mask, key_padding_mask=key_padding_mask, causal=causal,
        scale=scale, window=window, dropout_p=dropout_p, seed=seed,
    )  # fmt: skip
    if _is_double(q) and kernel not in (None, "plain"):
        raise ValueError(
            f"flash_attention: kernel={kernel!r} has no float64; leave kernel= away, "
            "and plain torch computes it."
        )
    if kernel == "plain" or (kernel is None and _needs_plain(q)):
        return attend_plain(q, k, v, options)
    wanted = torch.is_grad_enabled() and any(t.requires_grad for t in (q, k, v))
    if wanted and kernel in RUNGS and kernel != "mma":
        raise ValueError(
            f"flash_attention: kernel={kernel!r} keeps nothing for a backward "
            "pass; leave kernel= away, or call under torch.no_grad()."
        )
    out: torch.Tensor = _attention(q, k, v, *options, kernel, drawn)[0]
    return out


_attend = recorded(varying=("seed",))(_attend_in_full)


def _is_double(tensor: object) -> bool:
    return isinstance(tensor, torch.Tensor) and tensor.dtype == torch.float64


def _needs_plain(q: object) -> bool:
    return isinstance(q, torch.Tensor) and (
        q.device.type != "cuda" or q.dtype == torch.float64
    )


@operator("flash_attention", varying=("seed",))
def _attention(
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
    drawn: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """One of the kernels forward: out, and the log-sum-exp where it is written."""
    options = Options(scale, first, last, mask, padding, dropout_p, seed)
    if kernel not in RUNGS:
        found: tuple[torch.Tensor, torch.Tensor] = attention(
            q, k, v, *options, kernel, drawn
        )
        return found
    out, lse = launch(cast(RungName, kernel), q, k, v, options)
    return out, q.new_empty(0, dtype=torch.float32) if lse is None else lse


@_attention.register_fake
def _(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *rest: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    kernel = rest[len(Options._fields)]
    written = kernel not in RUNGS or kernel == "mma"
    lse = q.new_empty(q.shape[:3] if written else 0, dtype=torch.float32)
    return q.new_empty(q.shape), lse


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    q, k, v, *rest, kernel, drawn = inputs
    options = Options(*rest)
    ctx.save_for_backward(q, k, v, *output, options.mask, options.padding, drawn)
    ctx.mark_non_differentiable(output[1])
    ctx.options = options._replace(mask=None, padding=None)
    # Gluon's forward takes more than its backward: there the faster is chosen.
    ctx.kernel = "triton" if kernel == "triton" else None


def _gradient(ctx: Any, grad: torch.Tensor, _: Any) -> tuple[torch.Tensor | None, ...]:
    *tensors, mask, padding, drawn = ctx.saved_tensors
    options = ctx.options._replace(mask=mask, padding=padding)
    if 0 in grad.stride():  # of a sum, say: TMA reads no expanded tensor
        grad = grad.contiguous()
    found = attention_backward(grad, *tensors, *options, ctx.kernel, drawn)
    return (*found, *[None] * (len(options) + 2))


_attention.register_autograd(_gradient, setup_context=_keep)
