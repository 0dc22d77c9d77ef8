"""Check what attention is called with, once, and put it into the kernels' terms.

The kernels know no ``causal`` and no ``window``: they know two offsets. Query i sees
key j where ``i + first <= j <= i + last``, and where the masks let it.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch

from kernelwright.operators import Varying

Causal = bool | Literal["bottom-right"]
Window = int | tuple[int | None, int | None] | None

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
MOST_HEAD_DIM = 256
UNBOUNDED = 2**30  # no sequence is longer


class Options(NamedTuple):
    """What the kernels are told beside q, k and v.

    Args:
        scale: what the products are multiplied by.
        first: query i sees no key before ``i + first``; ``-UNBOUNDED`` where all.
        last: and none after ``i + last``.
        mask: bool or floating, expanded to (batch, heads, q_len, kv_len).
        padding: bool (batch, kv_len), true where a key is padding.
        dropout_p: share of the weights that is dropped.
        seed: what Philox starts from.
    """

    scale: float
    first: int
    last: int
    mask: torch.Tensor | None
    padding: torch.Tensor | None
    dropout_p: float
    seed: int

    @property
    def bounded(self) -> tuple[bool, bool]:
        """Say whether there is a first and a last key."""
        return self.first > -UNBOUNDED, self.last < UNBOUNDED

    @property
    def plain(self) -> bool:
        """Say whether nothing is asked but full attention, or causal."""
        return (
            self.mask is None
            and self.padding is None
            and self.dropout_p == 0.0
            and not self.bounded[0]
        )


def read_options(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    mask: torch.Tensor | None,
    key_padding_mask: torch.Tensor | None,
    causal: Causal,
    scale: float | None,
    window: Window,
    dropout_p: float,
    seed: int | None,
) -> Options:
    """Check every argument of attention.

    Raises:
        TypeError: what is no tensor, or of a dtype that is not handled.
        ValueError: shapes that do not fit, values out of range.
    """
    check_tensors(q, k, v)
    batch, heads, q_len, head_dim = q.shape
    kv_len = k.shape[2]
    first, last = _offsets(q_len, kv_len, causal, window)
    if not 0.0 <= dropout_p < 1.0:
        raise ValueError(f"dropout_p is {dropout_p}; wanted 0 <= dropout_p < 1.")
    if dropout_p > 0.0 and seed is None:
        raise ValueError(
            "dropout_p > 0 needs a seed: the backward pass draws the same numbers "
            "again. Pass seed=int(torch.randint(2**31, ()))."
        )
    return Options(
        scale=1.0 / math.sqrt(max(head_dim, 1)) if scale is None else float(scale),
        first=first,
        last=last,
        mask=_mask(mask, (batch, heads, q_len, kv_len), q.device),
        padding=_padding(key_padding_mask, (batch, kv_len), q.device),
        dropout_p=float(dropout_p),
        seed=_seed(seed),
    )


def _seed(seed: int | None) -> int:
    if isinstance(seed, Varying):
        return seed  # of a recorded call: the kernels take it as it is
    return 0 if seed is None else int(seed) % 2**63


def check_tensors(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    """Check that q, k and v belong together."""
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{name} is {type(tensor).__name__}; wanted a tensor.")
        if tensor.dtype not in DTYPES:
            raise TypeError(
                f"{name} is {tensor.dtype}; wanted float16, bfloat16 or float32: "
                f"{name}.float()."
            )
        if tensor.ndim != 4:
            raise ValueError(
                f"{name} has shape {tuple(tensor.shape)}; wanted "
                "(batch, heads, length, head_dim)."
            )
        if (tensor.dtype, tensor.device) != (q.dtype, q.device):
            raise ValueError(
                f"{name} is {tensor.dtype} on {tensor.device}, q is {q.dtype} on "
                f"{q.device}: wanted the same; {name}.to(q)."
            )
    if k.shape != v.shape:
        raise ValueError(
            f"k has shape {tuple(k.shape)} and v {tuple(v.shape)}: wanted the same."
        )
    if q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
        raise ValueError(
            f"q has shape {tuple(q.shape)} and k {tuple(k.shape)}: batch and "
            "head_dim must be the same."
        )
    if not 1 <= q.shape[3] <= MOST_HEAD_DIM:
        raise ValueError(
            f"head_dim is {q.shape[3]}; wanted 1 to {MOST_HEAD_DIM}: split the heads."
        )
    if k.shape[1] == 0 or q.shape[1] % k.shape[1]:
        raise ValueError(
            f"q has {q.shape[1]} heads and k {k.shape[1]}: the first must be a "
            "multiple of the second."
        )


def _offsets(
    q_len: int, kv_len: int, causal: Causal, window: Window
) -> tuple[int, int]:
    if causal not in (False, True, "bottom-right"):
        raise ValueError(
            f"causal is {causal!r}; wanted False, True (key j <= query i, as torch's "
            "is_causal) or 'bottom-right' (the last query sees the last key)."
        )
    offset = kv_len - q_len if causal == "bottom-right" else 0
    left, right = window if isinstance(window, tuple) else (window, window)
    for side in (left, right):
        if side is not None and side < 0:
            raise ValueError(f"window is {window}; wanted no side below 0, or None.")
    if causal:
        right = 0
    first = -UNBOUNDED if left is None else offset - left
    return first, UNBOUNDED if right is None else offset + right


def _mask(
    mask: torch.Tensor | None, shape: tuple[int, int, int, int], device: torch.device
) -> torch.Tensor | None:
    if mask is None:
        return None
    if mask.dtype != torch.bool and not mask.dtype.is_floating_point:
        raise TypeError(
            f"mask is {mask.dtype}; wanted bool (true takes part) or floating (added "
            "to the scaled products): mask.bool()."
        )
    if mask.requires_grad:
        raise ValueError(
            "mask requires a gradient, and none flows into it here: pass "
            "mask.detach(), or use torch's attention for a learned bias."
        )
    if mask.device != device:
        raise ValueError(f"mask is on {mask.device}, q on {device}: mask.to(q.device).")
    try:
        expanded = mask.expand(shape)
    except RuntimeError:
        raise ValueError(
            f"mask has shape {tuple(mask.shape)}; wanted one that broadcasts to "
            f"(batch, heads, q_len, kv_len) = {shape}."
        ) from None
    if mask.dtype == torch.bool:
        return expanded.view(torch.uint8)
    return expanded.float() if mask.dtype == torch.float64 else expanded


def _padding(
    padding: torch.Tensor | None, shape: tuple[int, int], device: torch.device
) -> torch.Tensor | None:
    if padding is None:
        return None
    if padding.dtype != torch.bool or tuple(padding.shape) != shape:
        raise ValueError(
            f"key_padding_mask is {padding.dtype} {tuple(padding.shape)}; wanted bool "
            f"(batch, kv_len) = {shape}, true where a key is padding."
        )
    if padding.device != device:
        raise ValueError(
            f"key_padding_mask is on {padding.device}, q on {device}: "
            "key_padding_mask.to(q.device)."
        )
    return padding.contiguous().view(torch.uint8)
