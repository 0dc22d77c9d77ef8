"""Attention forward for Hopper at head_dim 64: more warps, shorter chains.

``solutions/flash_attention_triton/hopper.py`` keeps the tensor cores and the units that
take exponentials half busy each (counters, gluon_together_64): no unit is full, its two
consumers wait for their own results. Differences here, in the order of what they should
bring:

- three or four consumers instead of two: where one waits, another has work;
- largest logits and sums in four chains a thread instead of two, and the sums stay with
  their thread until the end: two shuffles a row and tile less;
- a tile of K and the tile of V before it come on one barrier, and go on one;
- acc is rescaled behind the next Q K^T instead of before it;
- a consumer skips tiles that none of its own queries sees;
- POLY: every fourth exponential is a polynomial, for units that are idle:

      2^x = 2^n 2^r,  n = round(x),  2^r = c0 + c1 r + c2 r^2 + c3 r^3

Source: the exponential is FlashAttention-4's idea (software exp2 on FMA units), the
coefficients are a fit of their own: the largest relative error for |r| <= 1/2 is least.
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
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from solutions.flash_attention_triton.hopper import LN2, LOG2E, ROWS, _hide
from solutions.flash_attention_triton.options import UNBOUNDED, Options

GROUP = gl.constexpr(8)  # columns of a row that 4 threads hold, side by side
LEAST = -125.0  # below it the polynomial's exponent would leave float32
POLYNOMIAL = (0.999928074, 0.693260985, 0.242611122, 0.0551716691)
REGISTERS = {2: 240, 3: 160, 4: 112}  # of a consumer's thread, by consumers


@gluon.jit
def _steps(first, rows, q_len, kv_len, last, BLOCK_N: gl.constexpr,
           BOUNDED: gl.constexpr):  # fmt: skip
    """Return how many tiles of keys these queries need, and how many all of them see.

    One that not all see at least: the first step, which starts the pipeline, is one.
    """
    stop = kv_len
    whole = kv_len // BLOCK_N
    if BOUNDED:
        last_row = gl.minimum(first + rows, q_len) - 1
        stop = gl.minimum(stop, gl.maximum(last_row + last + 1, 0))
        whole = gl.minimum(whole, gl.maximum(first + last + 1, 0) // BLOCK_N)
    steps = gl.maximum(gl.cdiv(stop, BLOCK_N), 1)
    return steps, gl.minimum(whole, steps - 1)


@gluon.jit
def _producer(
    asked, BLOCK_N: gl.constexpr, STAGES: gl.constexpr, CONSUMERS: gl.constexpr
):
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
        at = (steps - 1 - i) * BLOCK_N  # from the last tile back to the first
        tma.async_copy_global_to_shared(
            k_desc, [b, kv_h, at, 0], bar, k_tiles.index(stage)
        )
        tma.async_copy_global_to_shared(
            v_desc, [b, kv_h, at + BLOCK_N, 0], bar, v_tiles.index(stage)
        )


@gluon.jit
def _exp2_of_four(x):
    """Take three exponentials as they come and the fourth as a polynomial.

    Adding 1.5 * 2^23 rounds to whole numbers, and leaves them in the lowest bits, from
    where a shift brings them to the exponent. Coefficients: POLYNOMIAL.
    """
    return gl.inline_asm_elementwise(
        """{
        .reg .f32 r, n, p;
        .reg .b32 e, q;
        ex2.approx.ftz.f32 $0, $4;
        ex2.approx.ftz.f32 $1, $5;
        ex2.approx.ftz.f32 $2, $6;
        max.ftz.f32 r, $7, 0fC2FA0000;
        add.rn.ftz.f32 n, r, 0f4B400000;
        mov.b32 e, n;
        sub.rn.ftz.f32 n, n, 0f4B400000;
        sub.rn.ftz.f32 r, r, n;
        fma.rn.ftz.f32 p, r, 0f3D61FBB0, 0f3E786F0D;
        fma.rn.ftz.f32 p, p, r, 0f3F31798D;
        fma.rn.ftz.f32 p, p, r, 0f3F7FFB49;
        shl.b32 e, e, 23;
        mov.b32 q, p;
        add.s32 q, q, e;
        mov.b32 $3, q;
        }""",
        "=f,=f,=f,=f,f,f,f,f", [x], dtype=gl.float32, is_pure=True, pack=4,
    )  # fmt: skip


@gluon.jit
def _top(s, m, scale_log2, ROW: gl.constexpr):
    """Return each query's largest logit so far, as a power of 2."""
    high = gl.max(s.reshape([ROWS, s.shape[1] // GROUP, GROUP]), 1)
    return gl.maximum(m, gl.convert_layout(gl.max(high, 1), ROW) * scale_log2)


@gluon.jit
def _weigh(s, m, scale_log2, POLY: gl.constexpr):
    """Return exponentials, and their sums as far as one thread can add them."""
    x = s * scale_log2 - m[:, None]
    p = _exp2_of_four(x) if POLY else gl.exp2(x)
    return p, gl.sum(p.reshape([ROWS, s.shape[1] // GROUP, GROUP]), 1)


@gluon.jit
def _take_turn(turns, i, C: gl.constexpr, IN_TURN: gl.constexpr):
    if IN_TURN:
        mbarrier.wait(turns.index(C), i & 1)


@gluon.jit
def _pass_turn(turns, C: gl.constexpr, CONSUMERS: gl.constexpr, IN_TURN: gl.constexpr):
    if IN_TURN:
        mbarrier.arrive(turns.index((C + 1) % CONSUMERS), count=1)


@gluon.jit
def _step(
    i, acc, p, m, sums, alpha, q, rows, k_tiles, v_tiles, full, empty, turns,
    steps, kv_len, last, scale_log2,
    BLOCK_N: gl.constexpr, STAGES: gl.constexpr, EDGE: gl.constexpr,
    C: gl.constexpr, CONSUMERS: gl.constexpr, IN_TURN: gl.constexpr,
    POLY: gl.constexpr, S: gl.constexpr, OUT: gl.constexpr, P: gl.constexpr,
):  # fmt: skip
    """Overlap: logits of tile i, and tile i - 1's weights times its values."""
    stage = i % STAGES
    mbarrier.wait(full.index(stage), (i // STAGES) & 1)
    k = k_tiles.index(stage).reshape([BLOCK_N, q.shape[1]])
    v = v_tiles.index(stage).reshape([BLOCK_N, q.shape[1]])
    none = gl.zeros([ROWS, BLOCK_N], gl.float32, S)
    _take_turn(turns, i, C, IN_TURN)
    s = warpgroup_mma(q, k.permute((1, 0)), none, use_acc=False, is_async=True)
    acc = acc * gl.convert_layout(alpha, gl.SliceLayout(1, OUT))[:, None]
    acc = warpgroup_mma(p, v, acc, is_async=True)
    _pass_turn(turns, C, CONSUMERS, IN_TURN)
    s = warpgroup_mma_wait(1, deps=[s])
    if EDGE:
        s = _hide(s, rows, (steps - 1 - i) * BLOCK_N, kv_len, last, BLOCK_N, S)
    m_new = _top(s, m, scale_log2, gl.SliceLayout(1, S))
    m_safe = m_new
    if EDGE:  # only there can a row have seen nothing yet
        m_safe = gl.where(m_new == float("-inf"), 0.0, m_new)
    alpha = gl.exp2(m - m_safe)
    # At an edge some exponentials are exactly 0, which the polynomial cannot be.
    weights, more = _weigh(s, m_safe, scale_log2, POLY and not EDGE)
    own: gl.constexpr = gl.SliceLayout(1, more.type.layout)
    sums = sums * gl.convert_layout(alpha, own)[:, None] + more
    later = gl.convert_layout(weights.to(q.dtype), P)
    # The assembler moves this wait up, behind the largest logits: P V is done by then,
    # and the new weights take the place of the old.
    acc, p, later, sums = warpgroup_mma_wait(0, deps=[acc, p, later, sums])
    mbarrier.arrive(empty.index(stage), count=1)
    return acc, later, m_new, sums, alpha


@gluon.jit
def _consume(
    shared, D: gl.constexpr, BLOCK_N: gl.constexpr, STAGES: gl.constexpr,
    CONSUMERS: gl.constexpr, BOUNDED: gl.constexpr, IN_TURN: gl.constexpr,
    POLY: gl.constexpr, C: gl.constexpr,
):  # fmt: skip
    """Own 64 queries: softmax(Q K^T) V over all tiles of keys that they see."""
    tiles, bars, numbers = shared
    out_desc, lse_ptr, q_tiles, k_tiles, v_tiles = tiles
    q_ready, full, empty, turns = bars
    b, h, plane, m0, steps, q_len, kv_len, last, scale_log2 = numbers
    S: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    OUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    P: gl.constexpr = gl.DotOperandLayout(0, OUT, 2)
    row: gl.constexpr = gl.SliceLayout(1, S)
    first = m0 + C * ROWS
    rows = first + gl.arange(0, ROWS, row)
    own, whole = _steps(first, ROWS, q_len, kv_len, last, BLOCK_N, BOUNDED)
    q = q_tiles.index(C).reshape([ROWS, D])
    acc = gl.zeros([ROWS, D], gl.float32, OUT)

    if IN_TURN and C == CONSUMERS - 1:
        mbarrier.arrive(turns.index(0), count=1)
    start = steps - own
    for i in range(start):  # tiles that only consumers further down see
        mbarrier.wait(full.index(i % STAGES), (i // STAGES) & 1)
        _take_turn(turns, i, C, IN_TURN)
        _pass_turn(turns, C, CONSUMERS, IN_TURN)
        mbarrier.arrive(empty.index(i % STAGES), count=1)
    stage = start % STAGES
    mbarrier.wait(q_ready.index(C), 0)
    mbarrier.wait(full.index(stage), (start // STAGES) & 1)
    k = k_tiles.index(stage).reshape([BLOCK_N, D])
    none = gl.zeros([ROWS, BLOCK_N], gl.float32, S)
    _take_turn(turns, start, C, IN_TURN)
    s = warpgroup_mma(q, k.permute((1, 0)), none, use_acc=False)
    _pass_turn(turns, C, CONSUMERS, IN_TURN)
    mbarrier.arrive(empty.index(stage), count=1)
    s = _hide(s, rows, (own - 1) * BLOCK_N, kv_len, last, BLOCK_N, S)
    m = _top(s, gl.full([ROWS], float("-inf"), gl.float32, row), scale_log2, row)
    m_safe = gl.where(m == float("-inf"), 0.0, m)
    weights, sums = _weigh(s, m_safe, scale_log2, False)
    alpha = gl.full([ROWS], 1.0, gl.float32, row)
    p = gl.convert_layout(weights.to(q.dtype), P)
    for i in range(start + 1, steps - whole):
        acc, p, m, sums, alpha = _step(
            i, acc, p, m, sums, alpha, q, rows, k_tiles, v_tiles, full, empty, turns,
            steps, kv_len, last, scale_log2, BLOCK_N, STAGES, True, C, CONSUMERS,
            IN_TURN, POLY, S, OUT, P,
        )  # fmt: skip
    for i in range(steps - whole, steps):
        acc, p, m, sums, alpha = _step(
            i, acc, p, m, sums, alpha, q, rows, k_tiles, v_tiles, full, empty, turns,
            steps, kv_len, last, scale_log2, BLOCK_N, STAGES, False, C, CONSUMERS,
            IN_TURN, POLY, S, OUT, P,
        )  # fmt: skip
    stage = steps % STAGES
    mbarrier.wait(full.index(stage), (steps // STAGES) & 1)
    acc = acc * gl.convert_layout(alpha, gl.SliceLayout(1, OUT))[:, None]
    acc = warpgroup_mma(p, v_tiles.index(stage).reshape([BLOCK_N, D]), acc)

    denom = gl.convert_layout(gl.sum(sums, 1), row)
    share = gl.where(denom == 0.0, 1.0, denom)
    acc = acc * gl.convert_layout(1.0 / share, gl.SliceLayout(1, OUT))[:, None]
    lse = gl.where(denom == 0.0, float("-inf"), (m + gl.log2(share)) * LN2)
    gl.store(lse_ptr + plane.to(gl.int64) * q_len + rows, lse, mask=rows < q_len)
    q.store(acc.to(q.dtype))  # Q is not needed any more: its place takes the output
    fence_async_shared()
    tma.async_copy_shared_to_global(out_desc, [b, h, first, 0], q_tiles.index(C))
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["heads", "group", "q_len", "kv_len", "last"])
def _forward_kernel(
    q_desc, k_desc, v_desc, out_desc, lse_ptr, heads, group, q_len, kv_len, last,
    scale_log2, D: gl.constexpr, BLOCK_N: gl.constexpr, STAGES: gl.constexpr,
    CONSUMERS: gl.constexpr, BOUNDED: gl.constexpr, IN_TURN: gl.constexpr,
    POLY: gl.constexpr, REGISTERS: gl.constexpr,
):  # fmt: skip
    BLOCK_M: gl.constexpr = CONSUMERS * ROWS
    tiles = gl.cdiv(q_len, BLOCK_M)
    pid = gl.program_id(0)
    # The last tile first: under a causal mask it has the most to do.
    m0 = (tiles - 1 - pid % tiles) * BLOCK_M
    plane = pid // tiles
    b, h = plane // heads, plane % heads
    kv_h = h // group
    steps, _ = _steps(m0, BLOCK_M, q_len, kv_len, last, BLOCK_N, BOUNDED)

    q_tiles = gl.allocate_shared_memory(
        q_desc.dtype, [CONSUMERS, 1, 1, ROWS, D], q_desc.layout
    )
    k_tiles = gl.allocate_shared_memory(
        k_desc.dtype, [STAGES, 1, 1, BLOCK_N, D], k_desc.layout
    )
    v_tiles = gl.allocate_shared_memory(
        v_desc.dtype, [STAGES, 1, 1, BLOCK_N, D], v_desc.layout
    )
    bar: gl.constexpr = mbarrier.MBarrierLayout()
    q_ready = gl.allocate_shared_memory(gl.int64, [CONSUMERS, 1], bar)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], bar)
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], bar)
    turns = gl.allocate_shared_memory(gl.int64, [CONSUMERS, 1], bar)
    for i in gl.static_range(CONSUMERS):
        mbarrier.init(q_ready.index(i), count=1)
        mbarrier.init(turns.index(i), count=1)
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=CONSUMERS)
    fence_async_shared()

    shared = (
        (out_desc, lse_ptr, q_tiles, k_tiles, v_tiles), (q_ready, full, empty, turns),
        (b, h, plane, m0, steps, q_len, kv_len, last, scale_log2),
    )  # fmt: skip
    asked = (
        q_desc, k_desc, v_desc, q_tiles, k_tiles, v_tiles, (q_ready, full, empty),
        (b, h, kv_h, m0, steps),
    )  # fmt: skip
    C: gl.constexpr = CONSUMERS
    if CONSUMERS == 2:
        gl.warp_specialize([
            (_consume, (shared, D, BLOCK_N, STAGES, C, BOUNDED, IN_TURN, POLY, 0)),
            (_consume, (shared, D, BLOCK_N, STAGES, C, BOUNDED, IN_TURN, POLY, 1)),
            (_producer, (asked, BLOCK_N, STAGES, CONSUMERS)),
        ], [4, 1], [REGISTERS, 24])  # fmt: skip
    elif CONSUMERS == 3:
        gl.warp_specialize([
            (_consume, (shared, D, BLOCK_N, STAGES, C, BOUNDED, IN_TURN, POLY, 0)),
            (_consume, (shared, D, BLOCK_N, STAGES, C, BOUNDED, IN_TURN, POLY, 1)),
            (_consume, (shared, D, BLOCK_N, STAGES, C, BOUNDED, IN_TURN, POLY, 2)),
            (_producer, (asked, BLOCK_N, STAGES, CONSUMERS)),
        ], [4, 4, 1], [REGISTERS, REGISTERS, 24])  # fmt: skip
    else:
        gl.warp_specialize([
            (_consume, (shared, D, BLOCK_N, STAGES, C, BOUNDED, IN_TURN, POLY, 0)),
            (_consume, (shared, D, BLOCK_N, STAGES, C, BOUNDED, IN_TURN, POLY, 1)),
            (_consume, (shared, D, BLOCK_N, STAGES, C, BOUNDED, IN_TURN, POLY, 2)),
            (_consume, (shared, D, BLOCK_N, STAGES, C, BOUNDED, IN_TURN, POLY, 3)),
            (_producer, (asked, BLOCK_N, STAGES, CONSUMERS)),
        ], [4, 4, 4, 1], [REGISTERS, REGISTERS, REGISTERS, 24])  # fmt: skip


def forward_hd64(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, options: Options,
    consumers: int = 3, block_n: int = 128, stages: int = 4, in_turn: bool = False,
    poly: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Launch the kernel on what ``hopper.refuses`` lets through; return out and lse.

    Args:
        q: (batch, heads, q_len, 64), fp16 or bf16.
        k: (batch, kv_heads, kv_len, 64).
        v: like k.
        options: plain ones.
        consumers: 2 to 4, of 64 queries each.
        block_n: keys of a tile.
        stages: tiles in the ring; at least as many as a program has tiles of queries.
        in_turn: consumers take turns at the tensor cores.
        poly: a quarter of the exponentials is a polynomial.
    """
    batch, heads, q_len, head_dim = q.shape
    kv_len = k.shape[2]
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    kind = gl.float16 if q.dtype == torch.float16 else gl.bfloat16
    rows, keys = [1, 1, 64, head_dim], [1, 1, block_n, head_dim]

    def describe(tensor: torch.Tensor, block: list[int]) -> TensorDescriptor:
        layout = gl.NVMMASharedLayout.get_default_for(block, kind)
        return TensorDescriptor.from_tensor(tensor, block, layout)

    bounded = options.bounded[1]
    grid = (triton.cdiv(q_len, 64 * consumers) * batch * heads,)
    _forward_kernel[grid](
        describe(q, rows), describe(k, keys), describe(v, keys), describe(out, rows),
        lse, heads, heads // k.shape[1], q_len, kv_len,
        options.last if bounded else UNBOUNDED, options.scale * LOG2E,
        D=head_dim, BLOCK_N=block_n, STAGES=stages, CONSUMERS=consumers,
        BOUNDED=bounded, IN_TURN=in_turn, POLY=poly, REGISTERS=REGISTERS[consumers],
        num_warps=4,
    )  # fmt: skip
    return out, lse
