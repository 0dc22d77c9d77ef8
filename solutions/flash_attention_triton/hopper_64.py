"""Attention forward for Hopper at head_dim 64: three consumers, shorter chains.

Queries half as long are half the work for the tensor cores and as many exponentials.
For a tile of 64 queries by 128 keys both are due for 512 cycles of an SM. With the two
consumers of ``hopper.py`` each unit is busy for half of the time (counters,
gluon_together_64): none is full, both consumers wait for their own results. So here

- a third consumer has work where two wait. There are registers for it: a thread holds
  64 logits, their weights, and 32 numbers of acc where head_dim 128 has 64; 3 * 128
  threads may have 160 registers each. A program owns 192 queries, and reads K and V a
  third less often than one of 128;
- largest logits and sums run in four chains a thread, and the sums stay with their
  thread until the end: two shuffles a row and tile less;
- acc is rescaled behind the next Q K^T instead of before it;
- a consumer passes over tiles that none of its own queries sees.

A tile of K, and the tile of V that is multiplied while its logits are taken, come on
one barrier and go on one:

    step 0           Q K[0]^T
    step i           Q K[i]^T  |  O += P[i-1] V[i-1]   issued together
                     softmax of tile i
    step steps                    O += P[i-1] V[i-1]

    full[stage]      the producer's copies arrived: consumers wait for it
    empty[stage]     all three consumers are done with it: the producer waits for it

An H200 on 2026-11-22, against cuDNN in the same rounds, full and causal; beside it
``hopper.py`` with its two consumers:

    1 * 32 heads, 16,384 tokens    1.14  1.13    0.94  0.99
    4 * 32 heads,  4,096 tokens    1.06  1.00    0.93  0.90

What did not win in the same rounds, at 16,384 tokens: turns at the tensor cores, which
``hopper.py`` has at head_dim 128, change next to nothing (1.13 and 1.14); with them,
polynomials for a quarter of the exponentials are slower (1.02 and 1.02), and so are
four consumers with tiles of 64 keys (1.07 and 1.09), which win at 4,096 tokens, causal,
alone (1.04).
"""

from __future__ import annotations

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from kernelwright.operators import held
from solutions.flash_attention_triton.hopper import (
    LN2,
    LOG2E,
    ROWS,
    _hide,
    _steps,
    described,
)
from solutions.flash_attention_triton.options import UNBOUNDED, Options

HEAD_DIM = gl.constexpr(64)
KEYS = gl.constexpr(128)  # of a tile
CONSUMERS = gl.constexpr(3)
STAGES = gl.constexpr(4)  # tiles of K and of V in the ring: 128 KiB of shared memory
# Of a consumer's thread. With the producer's 24: 3 * 128 * 160 + 128 * 24 <= 65536.
REGISTERS = gl.constexpr(160)
GROUP = gl.constexpr(8)  # columns of a row that 4 threads hold, side by side


@gluon.jit
def _producer(asked):
    """Ask for Q, then step by step for a tile of K and the tile of V used with it.

    The first step has no V and the last no K: what is asked for there lies outside or
    is not used, and costs less than a branch.
    """
    q_desc, k_desc, v_desc, q_tiles, k_tiles, v_tiles, bars, numbers = asked
    q_ready, full, empty = bars
    b, h, kv_h, m0, steps = numbers
    for c in gl.static_range(CONSUMERS):
        bar = q_ready.index(c)
        mbarrier.expect(bar, q_desc.block_type.nbytes)
        tma.async_copy_global_to_shared(
            q_desc, [b, h, m0 + c * ROWS, 0], bar, q_tiles.index(c)
        )
    for i in range(steps + 1):
        stage = i % STAGES
        # The first pass over the ring finds it empty.
        mbarrier.wait(empty.index(stage), ((i // STAGES) & 1) ^ 1)
        bar = full.index(stage)
        mbarrier.expect(bar, k_desc.block_type.nbytes + v_desc.block_type.nbytes)
        at = (steps - 1 - i) * KEYS  # from the last tile back to the first
        tma.async_copy_global_to_shared(
            k_desc, [b, kv_h, at, 0], bar, k_tiles.index(stage)
        )
        tma.async_copy_global_to_shared(
            v_desc, [b, kv_h, at + KEYS, 0], bar, v_tiles.index(stage)
        )


@gluon.jit
def _top(s, m, scale_log2, ROW: gl.constexpr):
    """Return each query's largest logit so far, as a power of 2."""
    high = gl.max(s.reshape([ROWS, KEYS // GROUP, GROUP]), 1)
    return gl.maximum(m, gl.convert_layout(gl.max(high, 1), ROW) * scale_log2)


@gluon.jit
def _weigh(s, m, scale_log2):
    """Return exponentials, and their sums as far as one thread can add them."""
    p = gl.exp2(s * scale_log2 - m[:, None])
    return p, gl.sum(p.reshape([ROWS, KEYS // GROUP, GROUP]), 1)


@gluon.jit
def _step(
    i, acc, p, m, sums, alpha, q, rows, shared,
    EDGE: gl.constexpr, S: gl.constexpr, OUT: gl.constexpr, P: gl.constexpr,
):  # fmt: skip
    """Overlap: logits of tile i, and tile i - 1's weights times its values."""
    tiles, bars, numbers = shared
    _, _, _, k_tiles, v_tiles = tiles
    _, full, empty = bars
    _, _, _, _, steps, _, kv_len, last, scale_log2 = numbers
    stage = i % STAGES
    mbarrier.wait(full.index(stage), (i // STAGES) & 1)
    k = k_tiles.index(stage).reshape([KEYS, HEAD_DIM])
    v = v_tiles.index(stage).reshape([KEYS, HEAD_DIM])
    none = gl.zeros([ROWS, KEYS], gl.float32, S)
    s = warpgroup_mma(q, k.permute((1, 0)), none, use_acc=False, is_async=True)
    acc = acc * gl.convert_layout(alpha, gl.SliceLayout(1, OUT))[:, None]
    acc = warpgroup_mma(p, v, acc, is_async=True)
    s = warpgroup_mma_wait(1, deps=[s])
    if EDGE:
        s = _hide(s, rows, (steps - 1 - i) * KEYS, kv_len, last, KEYS, S)
    m_new = _top(s, m, scale_log2, gl.SliceLayout(1, S))
    m_safe = m_new
    if EDGE:  # only there can a row have seen nothing yet
        m_safe = gl.where(m_new == float("-inf"), 0.0, m_new)
    alpha = gl.exp2(m - m_safe)
    weights, more = _weigh(s, m_safe, scale_log2)
    own: gl.constexpr = gl.SliceLayout(1, more.type.layout)
    sums = sums * gl.convert_layout(alpha, own)[:, None] + more
    later = gl.convert_layout(weights.to(q.dtype), P)
    # The assembler moves this wait up, behind the largest logits: P V is done by then,
    # and the new weights take the place of the old.
    acc, p, later, sums = warpgroup_mma_wait(0, deps=[acc, p, later, sums])
    mbarrier.arrive(empty.index(stage), count=1)
    return acc, later, m_new, sums, alpha


@gluon.jit
def _consume(shared, BOUNDED: gl.constexpr, C: gl.constexpr):
    """Own 64 queries: softmax(Q K^T) V over all tiles of keys that they see."""
    tiles, bars, numbers = shared
    out_desc, lse_ptr, q_tiles, k_tiles, v_tiles = tiles
    q_ready, full, empty = bars
    b, h, plane, m0, steps, q_len, kv_len, last, scale_log2 = numbers
    S: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, KEYS, 16])
    OUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD_DIM, 16])
    P: gl.constexpr = gl.DotOperandLayout(0, OUT, 2)
    row: gl.constexpr = gl.SliceLayout(1, S)
    first = m0 + C * ROWS
    rows = first + gl.arange(0, ROWS, row)
    own, whole = _steps(first, q_len, kv_len, last, ROWS, KEYS, BOUNDED)
    q = q_tiles.index(C).reshape([ROWS, HEAD_DIM])
    acc = gl.zeros([ROWS, HEAD_DIM], gl.float32, OUT)

    start = steps - own
    for i in range(start):  # tiles that only consumers further down see
        mbarrier.wait(full.index(i % STAGES), (i // STAGES) & 1)
        mbarrier.arrive(empty.index(i % STAGES), count=1)
    stage = start % STAGES
    mbarrier.wait(q_ready.index(C), 0)
    mbarrier.wait(full.index(stage), (start // STAGES) & 1)
    k = k_tiles.index(stage).reshape([KEYS, HEAD_DIM])
    none = gl.zeros([ROWS, KEYS], gl.float32, S)
    s = warpgroup_mma(q, k.permute((1, 0)), none, use_acc=False)
    mbarrier.arrive(empty.index(stage), count=1)
    s = _hide(s, rows, (own - 1) * KEYS, kv_len, last, KEYS, S)
    m = _top(s, gl.full([ROWS], float("-inf"), gl.float32, row), scale_log2, row)
    m_safe = gl.where(m == float("-inf"), 0.0, m)
    weights, sums = _weigh(s, m_safe, scale_log2)
    alpha = gl.full([ROWS], 1.0, gl.float32, row)
    p = gl.convert_layout(weights.to(q.dtype), P)
    for i in range(start + 1, steps - whole):
        acc, p, m, sums, alpha = _step(
            i, acc, p, m, sums, alpha, q, rows, shared, True, S, OUT, P,
        )  # fmt: skip
    for i in range(steps - whole, steps):
        acc, p, m, sums, alpha = _step(
            i, acc, p, m, sums, alpha, q, rows, shared, False, S, OUT, P,
        )  # fmt: skip
    stage = steps % STAGES
    mbarrier.wait(full.index(stage), (steps // STAGES) & 1)
    acc = acc * gl.convert_layout(alpha, gl.SliceLayout(1, OUT))[:, None]
    acc = warpgroup_mma(p, v_tiles.index(stage).reshape([KEYS, HEAD_DIM]), acc)

    denom = gl.convert_layout(gl.sum(sums, 1), row)
    share = gl.where(denom == 0.0, 1.0, denom)
    acc = acc * gl.convert_layout(1.0 / share, gl.SliceLayout(1, OUT))[:, None]
    lse = gl.where(denom == 0.0, float("-inf"), (m + gl.log2(share)) * LN2)
    gl.store(lse_ptr + plane.to(gl.int64) * q_len + rows, lse, mask=rows < q_len)
    q.store(acc.to(q.dtype))  # Q is not needed any more: its place takes the output
    fence_async_shared()
    tma.async_copy_shared_to_global(out_desc, [b, h, first, 0], q_tiles.index(C))
    tma.store_wait(0)


# One machine code for all lengths: no number is treated apart because it is 1, or a
# multiple of 16.
@gluon.jit(do_not_specialize=["heads", "group", "q_len", "kv_len", "last"])
def _forward_kernel(
    q_desc, k_desc, v_desc, out_desc, lse_ptr, heads, group, q_len, kv_len, last,
    scale_log2, BOUNDED: gl.constexpr,
):  # fmt: skip
    BLOCK_M: gl.constexpr = CONSUMERS * ROWS
    tiles = gl.cdiv(q_len, BLOCK_M)
    pid = gl.program_id(0)
    # The last tile first: under a causal mask it has the most to do.
    m0 = (tiles - 1 - pid % tiles) * BLOCK_M
    plane = pid // tiles
    b, h = plane // heads, plane % heads
    kv_h = h // group
    steps, _ = _steps(m0, q_len, kv_len, last, BLOCK_M, KEYS, BOUNDED)

    q_tiles = gl.allocate_shared_memory(
        q_desc.dtype, [CONSUMERS, 1, 1, ROWS, HEAD_DIM], q_desc.layout
    )
    k_tiles = gl.allocate_shared_memory(
        k_desc.dtype, [STAGES, 1, 1, KEYS, HEAD_DIM], k_desc.layout
    )
    v_tiles = gl.allocate_shared_memory(
        v_desc.dtype, [STAGES, 1, 1, KEYS, HEAD_DIM], v_desc.layout
    )
    bar: gl.constexpr = mbarrier.MBarrierLayout()
    q_ready = gl.allocate_shared_memory(gl.int64, [CONSUMERS, 1], bar)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], bar)
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], bar)
    for i in gl.static_range(CONSUMERS):
        mbarrier.init(q_ready.index(i), count=1)
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=CONSUMERS)
    fence_async_shared()

    shared = (
        (out_desc, lse_ptr, q_tiles, k_tiles, v_tiles), (q_ready, full, empty),
        (b, h, plane, m0, steps, q_len, kv_len, last, scale_log2),
    )  # fmt: skip
    asked = (
        q_desc, k_desc, v_desc, q_tiles, k_tiles, v_tiles, (q_ready, full, empty),
        (b, h, kv_h, m0, steps),
    )  # fmt: skip
    gl.warp_specialize([
        (_consume, (shared, BOUNDED, 0)),
        (_consume, (shared, BOUNDED, 1)),
        (_consume, (shared, BOUNDED, 2)),
        (_producer, (asked,)),
    ], [4, 4, 1], [REGISTERS, REGISTERS, 24])  # fmt: skip


def forward_gluon_64(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, options: Options
) -> tuple[torch.Tensor, torch.Tensor]:
    """Launch the kernel; ask ``hopper.refuses`` beforehand whether it can.

    Args:
        q: (batch, heads, q_len, 64), fp16 or bf16.
        k: (batch, kv_heads, kv_len, 64).
        v: like k.
        options: plain ones.

    Returns:
        out and lse, as ``forward`` has them.
    """
    batch, heads, q_len, _ = q.shape
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    rows, keys = ROWS.value, KEYS.value
    bounded = options.bounded[1]
    grid = (triton.cdiv(q_len, CONSUMERS.value * rows) * batch * heads,)
    held(_forward_kernel)[grid](
        described(q, rows), described(k, keys), described(v, keys),
        described(out, rows), lse, heads, heads // k.shape[1], q_len, k.shape[2],
        options.last if bounded else UNBOUNDED, options.scale * LOG2E,
        BOUNDED=bounded, num_warps=4,
    )  # fmt: skip
    return out, lse
