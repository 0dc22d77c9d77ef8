"""What the kernels share: who sees whom, and who is dropped."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def add_mask(
    s, rows, cols, q_len, kv_len, mask, stride_row, stride_col, FLOATING: tl.constexpr
):
    """Apply a tensor's mask to logits in units of log2; rows and cols broadcast."""
    inside = (rows < q_len) & (cols < kv_len)
    at = mask + rows.to(tl.int64) * stride_row + cols.to(tl.int64) * stride_col
    if FLOATING:
        bias = tl.load(at, mask=inside, other=0.0).to(tl.float32)
        # A finite bias stays finite in log2: torch's own finfo.min must not turn
        # into -inf, which would say that the key does not exist.
        scaled = tl.maximum(bias, -2.3e38) * LOG2E
        return s + tl.where(bias == float("-inf"), float("-inf"), scaled)
    seen = tl.load(at, mask=inside, other=0)
    return tl.where(seen != 0, s, float("-inf"))


@triton.jit
def hide(
    s, rows, cols, bounds, masks, EDGE: tl.constexpr, MASK: tl.constexpr,
    FLOATING: tl.constexpr, PADDING: tl.constexpr, TAIL: tl.constexpr = False,
):  # fmt: skip
    """Give logits of keys that a query does not see -inf, and add the mask's bias.

    rows and cols broadcast to s, either way round. bounds: how many queries and keys
    there are, and first and last as ``Options`` has them; masks: a head's mask, a
    batch's padding, and the mask's strides. EDGE: the bounds may cut here; TAIL: rows
    past the end count, and must not.
    """
    q_len, kv_len, first, last = bounds
    mask_head, padding_row, stride_mm, stride_mn = masks
    if EDGE:
        seen = (rows < q_len) & (cols < kv_len) if TAIL else cols < kv_len
        seen &= cols >= rows + first
        seen &= cols <= rows + last
        s = tl.where(seen, s, float("-inf"))
    if MASK:
        s = add_mask(
            s, rows, cols, q_len, kv_len, mask_head, stride_mm, stride_mn, FLOATING
        )  # fmt: skip
    if PADDING:
        hidden = tl.load(padding_row + cols, mask=cols < kv_len, other=1)
        s = tl.where(hidden != 0, float("-inf"), s)
    return s


@triton.jit
def kept(draw, rows, cols):
    """Draw who is kept: a number of Philox at (row, column, batch * heads + head).

    draw: the seed, batch * heads + head, and the share that is dropped. The number
    depends on the place alone, never on the tile: forward and backward draw it in
    another order, with other tiles, and get the same.
    """
    seed, plane, p = draw
    zero = rows * 0 + cols * 0
    bits, _, _, _ = tl.philox(
        seed, (rows + zero).to(tl.uint32), (cols + zero).to(tl.uint32),
        (plane + zero).to(tl.uint32), zero.to(tl.uint32),
    )  # fmt: skip
    # 24 bits: every one of these is a float32 exactly.
    return (bits >> 8).to(tl.int32).to(tl.float32) * (1.0 / 16777216.0) >= p


def dropout_mask(
    batch: int,
    heads: int,
    q_len: int,
    kv_len: int,
    dropout_p: float,
    seed: int,
    device: torch.device | str = "cpu",
) -> torch.Tensor:
    """Draw in plain torch what the kernels draw: Philox4x32-10, bit for bit.

    Returns:
        bool (batch, heads, q_len, kv_len), true where a weight is kept.

    Source: Salmon, Moraes, Dror, Shaw, *Parallel random numbers: as easy as 1, 2, 3*
    (SC 2011), section 3.
    """
    low = 0xFFFFFFFF

    def counter(n: int, axis: int) -> torch.Tensor:
        shape = [1, 1, 1]
        shape[axis] = n
        return torch.arange(n, device=device, dtype=torch.int64).view(shape)

    shape = (batch * heads, q_len, kv_len)
    c2 = counter(batch * heads, 0).expand(shape)
    c0, c1 = counter(q_len, 1).expand(shape), counter(kv_len, 2).expand(shape)
    c3 = torch.zeros_like(c0)
    k0, k1 = seed & low, (seed >> 32) & low
    for _ in range(10):
        high_a, low_a = _product(0xD2511F53, c0)
        high_b, low_b = _product(0xCD9E8D57, c2)
        c0, c1, c2, c3 = high_b ^ c1 ^ k0, low_b, high_a ^ c3 ^ k1, low_a
        k0, k1 = (k0 + 0x9E3779B9) & low, (k1 + 0xBB67AE85) & low
    uniform = (c0 >> 8).float() * (1.0 / 16777216.0)
    return (uniform >= dropout_p).view(batch, heads, q_len, kv_len)


def _product(a: int, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Multiply 32 by 32 bits: high and low halves, in int64 that must not overflow."""
    top, bottom = a * (b >> 16), a * (b & 0xFFFF)  # both below 2^48
    whole = (top & 0xFFFF) * 65536 + bottom  # below 2^49
    return ((top >> 16) + (whole >> 32)) & 0xFFFFFFFF, whole & 0xFFFFFFFF
