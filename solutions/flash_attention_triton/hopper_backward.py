"""Attention backward for Hopper in Gluon: one pass over the keys, five products a tile.

``backward.py`` passes over everything twice and so computes S and dP twice. Here one
program owns 128 keys and walks over the queries, 64 at a time. Two warpgroups own 64 of
the keys each, and hold their dK and dV in registers from first to last:

    S^T = K Q^T          P^T = exp(scale * S^T - lse)       dV += P^T dO
    dP^T = V dO^T - D    dS^T = P^T * dP^T                  dK += dS^T Q
    dQ = dS K            of both warpgroups' dS, over shared memory

S and dP are turned (keys are rows), so that P and dS come out of a product as the next
one takes them in: from registers.

    producer   one warp: asks TMA for Q, dO and their lse and D, and nothing else
    consumers  two warpgroups of 4 warps: 64 keys each; half of the columns of dQ each
    keeper     one warp: says when the consumers may add to dQ

A consumer never waits for what it has just asked for:

    asked for                         done meanwhile
    dQ of the step before, S = K Q^T  that dQ is added to global memory
    dP = V dO^T                       P = exp(S)
    dV += P dO                        dS = P * dP
    dK += dS Q                        dS to shared memory, for both consumers

Many programs add to one tile of dQ, in fp32, and a sum's bits depend on its order. The
keeper lets programs in one after another, always in the same order: **every run gives
the same bits**. A program only waits for those that drew a lower ticket, which are
running: no deadlock. On an H200 that is 1.75 to 1.88 times as fast as FlashAttention-2
(4,096 and 16,384 tokens, full and causal); added in whatever order the programs come,
it would be 1.86 to 2.0 times. ``backward.py`` is at 1.15 to 1.21.

K lies in shared memory twice: as it is for S, and in halves of its columns for dQ. A
half of 64 columns has 32, and wgmma reads those in another order of 16-byte pieces.

The budget of a step on one SM with heads of 128, counted. With heads of 64 products and
bytes are half, exponentials are not: they weigh twice.

    tensor cores      5 products of 64 * 128 * 128, 2,048 a cycle       2,560 cycles
    shared memory     S, dP, dQ 64 KiB each; dV, dK 32 KiB each; dS, Q
                      and dO written: 304 KiB at 128 bytes a cycle      2,432
    exponentials      64 * 128, 16 a cycle                                512
    instructions      about 400 of 8 warps, on 4 schedulers               800

    registers         dK, dV 64 each, S 32, dP 32, P and dS 16 each: 224 of 240
    shared memory     K twice, V 32 KiB each; Q, dO, dS twice, 32 KiB each: 193 of 227
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

from kernelwright.operators import held
from solutions.flash_attention_triton import hopper
from solutions.flash_attention_triton.hopper_backward_ends import (
    finish_kernel,
    prepare_kernel,
)
from solutions.flash_attention_triton.options import UNBOUNDED, Options

LOG2E = 1.4426950408889634
ROWS = gl.constexpr(64)  # queries of a step; keys of a consumer
KEYS = gl.constexpr(128)  # of a program
STAGES = gl.constexpr(2)


@gluon.jit
def _drawn(ticket, planes, tiles, SIDE: gl.constexpr):
    """Say which task a ticket is for: tasks count tiles of keys, then planes.

    SIDE planes, each a KV head of a sequence, begin together.
    """
    start = ticket // (SIDE * tiles) * SIDE
    beside = gl.minimum(planes - start, SIDE)
    rest = ticket % (SIDE * tiles)
    return (start + rest % beside) * tiles + rest // beside


@gluon.jit
def _task(task, sizes, BOUNDED: gl.constexpr, SIDE: gl.constexpr):
    """Say which keys a program owns: batch, head and place."""
    heads, group, _, kv_len, _ = sizes
    tiles = gl.cdiv(kv_len, KEYS)
    tile = task % tiles
    if BOUNDED and SIDE == 1:
        # Down the keys: who comes before has fewer queries before these, and is ahead.
        # The other way round it waits at every tile: by a model 1.75 times as long.
        tile = tiles - 1 - tile
    plane = task // tiles
    kv_heads = heads // group
    return plane // kv_heads, plane % kv_heads, tile


@gluon.jit
def _walk(tile, sizes, BOUNDED: gl.constexpr):
    """Return the first tile of queries that sees a key, their number, and edges.

    Edges are tiles of which some query does not see all 128 keys: the first ones.
    """
    _, _, q_len, kv_len, last = sizes
    n0 = tile * KEYS
    tiles = gl.cdiv(q_len, ROWS)
    first = 0
    edges = 0
    if BOUNDED:  # key j is seen by query i if j <= i + last
        first = gl.minimum(gl.maximum(n0 - last, 0) // ROWS, tiles)
        all_see = gl.cdiv(gl.maximum(n0 + KEYS - 1 - last, 0), ROWS)
        edges = gl.minimum(all_see, tiles) - first
    count = tiles - first
    if n0 + KEYS > kv_len:
        edges = count
    return first, count, edges


@gluon.jit
def _met(i, first, count, BOUNDED: gl.constexpr, SIDE: gl.constexpr):
    """Say which tile of queries a walk meets at its step i."""
    m = first + i
    if BOUNDED and SIDE > 1:
        # Up from the last one, which every key sees: those that begin together have
        # all begun when the first of them is there.
        m = first + count - 1 - i
    return m


@gluon.jit
def _before(tile, m, sizes, BOUNDED: gl.constexpr, SIDE: gl.constexpr):
    """Count who adds to tile m of queries before: keys up, or down as in ``_task``."""
    _, _, _, kv_len, last = sizes
    before = tile
    if BOUNDED and SIDE == 1:
        most = ((m + 1) * ROWS + last - 1) // KEYS
        before = gl.minimum(most, gl.cdiv(kv_len, KEYS) - 1) - tile
    return before


@gluon.jit
def _producer(asked, BOUNDED: gl.constexpr, SIDE: gl.constexpr):
    """Ask for K and V once; for Q, its lse and D, and dO in the order of the walk."""
    descs, tiles, bars, numbers = asked
    q_desc, k_desc, half_desc, v_desc, g_desc, stat_desc = descs
    q_tiles, k_tiles, k_halves, v_tiles, g_tiles, stats = tiles
    k_ready, v_ready, q_full, g_full, empty = bars
    task, sizes = numbers
    heads, group, q_len, _, _ = sizes
    b, kv_h, tile = _task(task, sizes, BOUNDED, SIDE)
    first, count, _ = _walk(tile, sizes, BOUNDED)
    q_tiles_all = gl.cdiv(q_len, ROWS)
    n0 = tile * KEYS
    # K lies there twice: in whole rows for S, in halves of its columns for dQ.
    mbarrier.expect(k_ready, 4 * k_desc.block_type.nbytes)
    for c in gl.static_range(2):
        at = n0 + c * ROWS
        tma.async_copy_global_to_shared(
            k_desc, [b, kv_h, at, 0], k_ready, k_tiles.index(c)
        )
        for half in gl.static_range(2):
            tma.async_copy_global_to_shared(
                half_desc, [b, kv_h, at, half * half_desc.block_type.shape[3]],
                k_ready, k_halves.index(c * 2 + half),
            )  # fmt: skip
    mbarrier.expect(v_ready, 2 * v_desc.block_type.nbytes)
    for c in gl.static_range(2):
        at = n0 + c * ROWS
        tma.async_copy_global_to_shared(
            v_desc, [b, kv_h, at, 0], v_ready, v_tiles.index(c)
        )
    for g in range(group):
        h = kv_h * group + g
        plane = b * heads + h
        for i in range(count):
            t = g * count + i
            stage = t % STAGES
            # The first pass over the ring finds it empty.
            phase = ((t // STAGES) & 1) ^ 1
            m = _met(i, first, count, BOUNDED, SIDE)
            mbarrier.wait(empty.index(stage), phase)
            bar = q_full.index(stage)
            mbarrier.expect(bar, q_desc.block_type.nbytes + stat_desc.block_type.nbytes)
            tma.async_copy_global_to_shared(
                q_desc, [b, h, m * ROWS, 0], bar, q_tiles.index(stage)
            )
            tma.async_copy_global_to_shared(
                stat_desc, [plane * q_tiles_all + m, 0], bar, stats.index(stage)
            )
            bar = g_full.index(stage)
            mbarrier.expect(bar, g_desc.block_type.nbytes)
            tma.async_copy_global_to_shared(
                g_desc, [b, h, m * ROWS, 0], bar, g_tiles.index(stage)
            )


@gluon.jit
def _wait_for(at, wanted):
    """Wait until a number in global memory, which others raise, is there."""
    gl.inline_asm_elementwise(
        "{ .reg .pred more; .reg .s32 seen; "
        "again: ld.acquire.gpu.global.s32 seen, [$1]; "
        "setp.ne.s32 more, seen, $2; @more bra again; mov.b32 $0, seen; }",
        "=r,l,r", [at, wanted], dtype=gl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@gluon.jit
def _keeper(kept, BOUNDED: gl.constexpr, SIDE: gl.constexpr):
    """Let the consumers add to a tile of dQ when it is this program's turn."""
    turn, added, turns_ptr, task, sizes = kept
    heads, group, q_len, _, _ = sizes
    b, kv_h, tile = _task(task, sizes, BOUNDED, SIDE)
    first, count, _ = _walk(tile, sizes, BOUNDED)
    q_tiles_all = gl.cdiv(q_len, ROWS)
    tile0 = (b * heads + kv_h * group) * q_tiles_all
    for g in range(group):
        for i in range(count):
            m = _met(i, first, count, BOUNDED, SIDE)
            at = turns_ptr + tile0 + g * q_tiles_all + m
            _wait_for(at, _before(tile, m, sizes, BOUNDED, SIDE))
            mbarrier.arrive(turn, count=1)
            mbarrier.wait(added, (g * count + i) & 1)
            # Releases what the consumers added, too: `added` brought it here.
            gl.atomic_add(at, 1, sem="release", scope="gpu")


@gluon.jit
def _scrambled(HALF: gl.constexpr, W: gl.constexpr):
    """Say where each number of a consumer's half of a tile of dQ is kept.

    Who holds which number is wgmma's choice. As nobody reads the sum but
    ``finish_kernel``, it is kept in that order: a thread's numbers in fours, and the
    fours of a warp side by side.
    """
    r = gl.arange(0, ROWS, gl.SliceLayout(1, W))[:, None]
    n = gl.arange(0, HALF, gl.SliceLayout(0, W))[None, :]
    thread = (r // 16) * 32 + (r % 8) * 4 + (n % 8) // 2
    return ((n // 8) * 128 + thread) * 4


@gluon.jit
def _add(dq, sum_ptr, tile, C: gl.constexpr, HALF: gl.constexpr, W: gl.constexpr):
    """Add a consumer's columns of dQ to a tile: four numbers an instruction.

    From registers: shared memory, through which TMA would add them, is the busier.
    """
    base = sum_ptr + (tile.to(gl.int64) * 2 + C) * (ROWS * HALF)
    gl.inline_asm_elementwise(
        "red.relaxed.gpu.global.add.v4.f32 [$8], {$4, $5, $6, $7}; "
        "mov.b32 $0, 0; mov.b32 $1, 0; mov.b32 $2, 0; mov.b32 $3, 0;",
        "=r,=r,=r,=r,r,r,r,r,l,l,l,l",
        [dq.to(gl.int32, bitcast=True), base + _scrambled(HALF, W)],
        dtype=gl.int32, is_pure=False, pack=4,
    )  # fmt: skip


@gluon.jit
def _give(dq, n, tile, adding, C: gl.constexpr, HALF: gl.constexpr, W: gl.constexpr):
    """Add to a tile when the keeper says so. The first, n = 0, is of nothing."""
    sum_ptr, turn, added = adding
    mbarrier.wait(turn, (n - 1) & 1, pred=n > 0)
    _add(dq, sum_ptr, tile, C, HALF, W)
    mbarrier.arrive(added, count=1, pred=n > 0)


@gluon.jit
def _hide(s, n0, m0, kv_len, last, S: gl.constexpr):
    """Take the keys that a query does not see out of a tile of logits."""
    key = gl.arange(0, ROWS, gl.SliceLayout(1, S))
    first = gl.where(key < kv_len - n0, key + (n0 - last - m0), ROWS)  # that sees it
    queries = gl.arange(0, ROWS, gl.SliceLayout(0, S))
    return gl.where(first[:, None] <= queries[None, :], s, float("-inf"))


@gluon.jit
def _slopes_times_keys(
    t, tiles, ds_full, C: gl.constexpr, HALF: gl.constexpr, W: gl.constexpr
):
    """Ask for this consumer's columns of dQ = dS K of step t, over all 128 keys."""
    _, k_halves, _, ds_tiles = tiles
    place = t & 1
    zero = (t + 1) >> 30
    mbarrier.wait(ds_full.index(place), (t // 2) & 1, pred=t >= 0)
    dq = gl.zeros([ROWS, HALF], gl.float32, W)
    for c in gl.static_range(2):
        a = ds_tiles.index(place * 2 + c).permute((1, 0))
        columns = k_halves.index(c * 2 + C + zero).reshape([ROWS, HALF])
        dq = warpgroup_mma(a, columns, dq, use_acc=c > 0, is_async=True)
    return dq


@gluon.jit
def _step(
    t, tile, owed, m, dk, dv, n0, ring, tiles, bars, adding, numbers,
    EDGE: gl.constexpr, C: gl.constexpr, D: gl.constexpr, S: gl.constexpr,
    W: gl.constexpr, A: gl.constexpr,
):  # fmt: skip
    """Do 64 keys and 64 queries, but for dQ: that of the step before is done here."""
    q_tiles, g_tiles, stats = ring
    k_tiles, _, v_tiles, _ = tiles
    q_full, g_full, empty, ds_full = bars
    kv_len, last, scale_log2 = numbers
    stage, phase = t % STAGES, (t // STAGES) & 1
    q = q_tiles.index(stage).reshape([ROWS, D])
    g = g_tiles.index(stage).reshape([ROWS, D])
    # Addresses that depend on the step are not kept in registers, which are short.
    zero = t >> 30
    k = k_tiles.index(C + zero).reshape([ROWS, D])
    v = v_tiles.index(C + zero).reshape([ROWS, D])

    # At first there is no step before: that product is of what lies there, and lost.
    dq = _slopes_times_keys(t - 1, tiles, ds_full, C, D // 2, W)
    mbarrier.wait(q_full.index(stage), phase)
    none = gl.zeros([ROWS, ROWS], gl.float32, S)
    s = warpgroup_mma(k, q.permute((1, 0)), none, use_acc=False, is_async=True)
    dq = warpgroup_mma_wait(1, deps=[dq])
    _give(dq, t, owed, adding, C, D // 2, W)

    lse = stats.index(stage).slice(0, ROWS, dim=1).load(S)
    dot = stats.index(stage).slice(ROWS, ROWS, dim=1).load(S)
    mbarrier.wait(g_full.index(stage), phase)
    start = gl.zeros([ROWS, ROWS], gl.float32, S) + dot
    dp = warpgroup_mma(v, g.permute((1, 0)), start, is_async=True)
    s = warpgroup_mma_wait(1, deps=[s])
    if EDGE:
        s = _hide(s, n0, m * ROWS, kv_len, last, S)
    p = gl.exp2(s * scale_log2 - lse)
    weights = gl.convert_layout(p.to(q.dtype), A)
    dv = warpgroup_mma(weights, g, dv, is_async=True)
    dp = warpgroup_mma_wait(1, deps=[dp])
    ds = (p * dp).to(q.dtype)
    slopes = gl.convert_layout(ds, A)
    dk = warpgroup_mma(slopes, q, dk, is_async=True)
    # Two places in turn: who writes here has seen that both have read the last but one.
    tiles[3].index((t & 1) * 2 + C).store(ds)
    fence_async_shared()
    mbarrier.arrive(ds_full.index(t & 1), count=1)
    dk, dv, weights, slopes = warpgroup_mma_wait(0, deps=[dk, dv, weights, slopes])
    mbarrier.arrive(empty.index(stage), count=1)
    return tile, dk, dv


@gluon.jit
def _consume(
    shared, BOUNDED: gl.constexpr, SIDE: gl.constexpr, C: gl.constexpr, D: gl.constexpr
):
    """Own 64 keys: their dK and dV, over all queries and all heads of the group."""
    descs, tiles, bars, adding, numbers = shared
    dk_desc, dv_desc = descs
    q_tiles, k_tiles, k_halves, v_tiles, g_tiles, stats, ds_tiles = tiles
    k_ready, v_ready, q_full, g_full, empty, ds_full = bars
    task, sizes, batch, scale, scale_log2 = numbers
    heads, group, q_len, kv_len, last = sizes
    b, kv_h, tile = _task(task, sizes, BOUNDED, SIDE)
    first, count, edges = _walk(tile, sizes, BOUNDED)
    q_tiles_all = gl.cdiv(q_len, ROWS)
    plane0 = b * heads + kv_h * group
    S: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    W: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D // 2, 16])
    OUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    A: gl.constexpr = gl.DotOperandLayout(0, OUT, 2)
    n0 = tile * KEYS + C * ROWS
    v = v_tiles.index(C).reshape([ROWS, D])
    dk = gl.zeros([ROWS, D], gl.float32, OUT)
    dv = gl.zeros([ROWS, D], gl.float32, OUT)
    total = group * count
    ring = (q_tiles, g_tiles, stats)
    kept = (k_tiles, k_halves, v_tiles, ds_tiles)
    watched = (q_full, g_full, empty, ds_full)
    known = (kv_len, last, scale_log2)

    mbarrier.wait(k_ready, 0)
    mbarrier.wait(v_ready, 0)
    owed = batch * heads * q_tiles_all  # at first to a tile that nobody reads
    LATE: gl.constexpr = BOUNDED and SIDE > 1  # edges are met last
    start = count - edges if LATE else edges
    for g in range(group):
        tile0 = (plane0 + g) * q_tiles_all
        for i in range(start):
            m = _met(i, first, count, BOUNDED, SIDE)
            owed, dk, dv = _step(
                g * count + i, tile0 + m, owed, m, dk, dv, n0, ring, kept,
                watched, adding, known, not LATE, C, D, S, W, A,
            )  # fmt: skip
        for i in range(start, count):
            m = _met(i, first, count, BOUNDED, SIDE)
            owed, dk, dv = _step(
                g * count + i, tile0 + m, owed, m, dk, dv, n0, ring, kept,
                watched, adding, known, LATE, C, D, S, W, A,
            )  # fmt: skip
    dq = _slopes_times_keys(total - 1, kept, ds_full, C, D // 2, W)
    dq = warpgroup_mma_wait(0, deps=[dq])
    _give(dq, total, owed, adding, C, D // 2, W)

    # V's place is this consumer's own, and not needed any more. Where it is in global
    # memory is computed again, and meanwhile in no register.
    b, kv_h, tile = _task(task + (owed >> 30), sizes, BOUNDED, SIDE)
    at = tile * KEYS + C * ROWS
    v.store(dv.to(v.dtype))
    fence_async_shared()
    tma.async_copy_shared_to_global(dv_desc, [b, kv_h, at, 0], v_tiles.index(C))
    tma.store_wait(0)
    v.store((dk * scale).to(v.dtype))
    fence_async_shared()
    tma.async_copy_shared_to_global(dk_desc, [b, kv_h, at, 0], v_tiles.index(C))
    tma.store_wait(0)


# Sizes of 1 or of whole sixteens are compiled as any other; a group of 1 is not, for
# its loop is none and takes no registers.
@gluon.jit(do_not_specialize=("batch", "heads", "q_len", "kv_len", "last"))
def _backward_kernel(
    q_desc, k_desc, half_desc, v_desc, g_desc, stat_desc, dk_desc, dv_desc, sum_ptr,
    turns_ptr, batch, heads, group, q_len, kv_len, last, scale, scale_log2,
    BOUNDED: gl.constexpr, D: gl.constexpr, SIDE: gl.constexpr,
):  # fmt: skip
    # Tickets are drawn in the order of starting; programs might start in another.
    ticket = gl.atomic_add(turns_ptr, 1, sem="relaxed", scope="gpu")
    task = _drawn(ticket, batch * (heads // group), gl.cdiv(kv_len, KEYS), SIDE)

    q_tiles = gl.allocate_shared_memory(
        q_desc.dtype, [STAGES, 1, 1, ROWS, D], q_desc.layout
    )
    g_tiles = gl.allocate_shared_memory(
        q_desc.dtype, [STAGES, 1, 1, ROWS, D], q_desc.layout
    )
    k_tiles = gl.allocate_shared_memory(q_desc.dtype, [2, 1, 1, ROWS, D], q_desc.layout)
    k_halves = gl.allocate_shared_memory(
        q_desc.dtype, [4, 1, 1, ROWS, D // 2], half_desc.layout
    )
    v_tiles = gl.allocate_shared_memory(q_desc.dtype, [2, 1, 1, ROWS, D], q_desc.layout)
    flat: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    ds_tiles = gl.allocate_shared_memory(q_desc.dtype, [4, ROWS, ROWS], flat)
    stats = gl.allocate_shared_memory(
        gl.float32, [STAGES, 1, 2 * ROWS], stat_desc.layout
    )
    bar: gl.constexpr = mbarrier.MBarrierLayout()
    k_ready = gl.allocate_shared_memory(gl.int64, [1], bar)
    v_ready = gl.allocate_shared_memory(gl.int64, [1], bar)
    turn = gl.allocate_shared_memory(gl.int64, [1], bar)
    added = gl.allocate_shared_memory(gl.int64, [1], bar)
    q_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], bar)
    g_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], bar)
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], bar)
    ds_full = gl.allocate_shared_memory(gl.int64, [2, 1], bar)
    mbarrier.init(k_ready, count=1)
    mbarrier.init(v_ready, count=1)
    mbarrier.init(turn, count=1)
    mbarrier.init(added, count=2)
    for i in gl.static_range(STAGES):
        mbarrier.init(q_full.index(i), count=1)
        mbarrier.init(g_full.index(i), count=1)
        mbarrier.init(empty.index(i), count=2)
    for i in gl.static_range(2):
        mbarrier.init(ds_full.index(i), count=2)
    fence_async_shared()

    sizes = (heads, group, q_len, kv_len, last)
    shared = (
        (dk_desc, dv_desc),
        (q_tiles, k_tiles, k_halves, v_tiles, g_tiles, stats, ds_tiles),
        (k_ready, v_ready, q_full, g_full, empty, ds_full),
        (sum_ptr, turn, added),
        (task, sizes, batch, scale, scale_log2),
    )
    asked = (
        (q_desc, k_desc, half_desc, v_desc, g_desc, stat_desc),
        (q_tiles, k_tiles, k_halves, v_tiles, g_tiles, stats),
        (k_ready, v_ready, q_full, g_full, empty),
        (task, sizes),
    )
    kept = (turn, added, turns_ptr + 1, task, sizes)
    gl.warp_specialize([
        (_consume, (shared, BOUNDED, SIDE, 0, D)),
        (_consume, (shared, BOUNDED, SIDE, 1, D)),
        (_producer, (asked, BOUNDED, SIDE)),
        (_keeper, (kept, BOUNDED, SIDE)),
    ], [4, 1, 1], [240, 24, 24])  # fmt: skip


def refuses(
    grad: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
    options: Options,
) -> str | None:  # fmt: skip
    """Say why this kernel cannot do what is asked; None where it can."""
    if reason := hopper.refuses(q, k, v, options):
        return reason
    if lacks := hopper.out_of_reach(grad):
        return f"TMA wants {lacks[0]}, and grad has {lacks[1]}"
    return None


def planes_beside(head_dim: int, programs: int) -> int:
    """Choose how many planes begin together: 16, or one after the other.

    Side by side, the programs with most to do come first, and the SMs end together: on
    an H200 12% faster with 512 programs. One by one, more programs share a tile of Q
    and dO while it is in L2: with heads of 128 and 2,048 programs 2 to 10% faster.
    """
    return 16 if head_dim == 64 or programs <= 1024 else 1


def backward_gluon(
    grad: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
    out: torch.Tensor, lse: torch.Tensor, options: Options,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """Launch the kernel and its ends; ask ``refuses`` beforehand whether it can.

    Args:
        grad: gradient of out; q's shape and dtype, a last stride of 1.
        q: (batch, heads, q_len, head_dim), float16 or bfloat16; 64 or 128.
        k: (batch, kv_heads, kv_len, head_dim).
        v: of k's shape.
        out: what ``forward`` returned.
        lse: likewise, fp32 (batch, heads, q_len).
        options: none but causal and scale.

    Returns:
        dq, dk, dv, contiguous, of the shape and dtype of q, k, v.

    Cost: 10 * batch * heads * q_len * kv_len * head_dim FLOPs, half under a causal
    mask, all of them due; batch * heads * q_len * (head_dim + 2) floats of extra
    memory, most for dQ's sum.

    Source: Dao, *FlashAttention-2* (2023), algorithm 2; Shah et al., *FlashAttention-3*
    (2024), section 3.
    """
    batch, heads, q_len, head_dim = q.shape
    kv_heads, kv_len = k.shape[1:3]
    rows = ROWS.value
    out, lse = out.contiguous(), lse.contiguous()
    dq = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    dk = torch.empty(k.shape, dtype=k.dtype, device=k.device)
    dv = torch.empty(v.shape, dtype=v.dtype, device=v.device)
    tiles = batch * heads * triton.cdiv(q_len, rows)
    stats = torch.empty((tiles, 2 * rows), dtype=torch.float32, device=q.device)
    # One tile more than there are: a walk's first sum, of nothing, goes there.
    shape = (tiles + 1, rows * head_dim)
    sums = torch.empty(shape, dtype=torch.float32, device=q.device)
    # The next ticket, then how many have added to each tile.
    turns = torch.empty(tiles + 1, dtype=torch.int32, device=q.device)
    held(prepare_kernel)[(tiles,)](
        out, grad, lse, stats, sums, turns, *grad.stride()[:3], heads, q_len,
        D=head_dim, num_warps=4,
    )  # fmt: skip

    halves = hopper.described(k, rows, head_dim // 2)
    q_desc, k_desc, *others = (hopper.described(t, rows) for t in (q, k, v, grad))
    flat = gl.NVMMASharedLayout(0, 32, 2)
    bounded = options.bounded[1]
    programs = triton.cdiv(kv_len, KEYS.value) * batch * kv_heads
    held(_backward_kernel)[(programs,)](
        q_desc, k_desc, halves, *others,
        TensorDescriptor.from_tensor(stats, [1, 2 * rows], flat),
        hopper.described(dk, rows), hopper.described(dv, rows), sums, turns, batch,
        heads, heads // kv_heads, q_len, kv_len,
        options.last if bounded else UNBOUNDED, options.scale, options.scale * LOG2E,
        BOUNDED=bounded, D=head_dim, SIDE=planes_beside(head_dim, programs),
        num_warps=4,
    )  # fmt: skip
    held(finish_kernel)[(tiles,)](
        sums, dq, q_len, options.scale, D=head_dim, num_warps=4
    )
    return dq, dk, dv
