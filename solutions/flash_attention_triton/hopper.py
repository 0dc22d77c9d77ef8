"""Attention forward for Hopper in Gluon: TMA, wgmma, and warps with roles.

Triton decides which warp does what; in Gluon you do. One program is three roles, run
side by side on one SM:

    producer   one warp: asks the TMA engine for tiles of K and V, and nothing else
    consumers  two or three warpgroups of 4 warps: 64 queries each

Barriers in shared memory (mbarriers) say which tile is there (full) and which may be
overwritten (empty). A consumer starts Q K^T of the next tile before it multiplies by V
for this one, and does its exponentials while the tensor cores work:

    wgmma S' = Q K[j+1]^T  |  wgmma O += P V[j]   issued together, both run on
    softmax of S'          |  while O += P V[j] is still at work

Both head dims run here, 64 and 128; at 64 ``hopper_64.py`` is faster, and ``forward``
takes that.
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
from solutions.flash_attention_triton.options import UNBOUNDED, Options

LOG2E = 1.4426950408889634
LN2 = gl.constexpr(0.6931471805599453)
ROWS = gl.constexpr(64)  # of a consumer: what one wgmma takes


@gluon.jit
def _steps(m0, q_len, kv_len, last, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr,
           BOUNDED: gl.constexpr):  # fmt: skip
    """Return how many tiles of keys queries need, and how many all of them see."""
    stop = kv_len
    whole = kv_len // BLOCK_N
    if BOUNDED:
        last_row = gl.minimum(m0 + BLOCK_M, q_len) - 1
        stop = gl.minimum(stop, gl.maximum(last_row + last + 1, 0))
        whole = gl.minimum(whole, gl.maximum(m0 + last + 1, 0) // BLOCK_N)
    steps = gl.maximum(gl.cdiv(stop, BLOCK_N), 1)
    # One edge at least: the first step, which starts the pipeline, is one.
    return steps, gl.minimum(whole, steps - 1)


@gluon.jit
def _producer(
    asked, BLOCK_N: gl.constexpr, STAGES: gl.constexpr, CONSUMERS: gl.constexpr
):
    """Ask for every tile in the order in which it is used: Q, K, then V behind K."""
    q_desc, k_desc, v_desc, q_tiles, k_tiles, v_tiles, bars, numbers = asked
    q_ready, k_full, k_empty, v_full, v_empty = bars
    b, h, kv_h, m0, steps = numbers
    for c in gl.static_range(CONSUMERS):
        bar = q_ready.index(c)
        mbarrier.expect(bar, q_desc.block_type.nbytes)
        tma.async_copy_global_to_shared(
            q_desc, [b, h, m0 + c * ROWS, 0], bar, q_tiles.index(c)
        )
    for i in range(steps):
        stage = i % STAGES
        # The first pass over the ring finds it empty.
        phase = ((i // STAGES) & 1) ^ 1
        at = (steps - 1 - i) * BLOCK_N  # from the last tile back to the first
        mbarrier.wait(k_empty.index(stage), phase)
        mbarrier.expect(k_full.index(stage), k_desc.block_type.nbytes)
        tma.async_copy_global_to_shared(
            k_desc, [b, kv_h, at, 0], k_full.index(stage), k_tiles.index(stage)
        )
        mbarrier.wait(v_empty.index(stage), phase)
        mbarrier.expect(v_full.index(stage), v_desc.block_type.nbytes)
        tma.async_copy_global_to_shared(
            v_desc, [b, kv_h, at, 0], v_full.index(stage), v_tiles.index(stage)
        )


@gluon.jit
def _hide(s, rows, n0, kv_len, last, BLOCK_N: gl.constexpr, S: gl.constexpr):
    """Take the keys that a query does not see out of a tile of logits."""
    cols = n0 + gl.arange(0, BLOCK_N, gl.SliceLayout(0, S))
    seen = (cols[None, :] < kv_len) & (cols[None, :] <= rows[:, None] + last)
    return gl.where(seen, s, float("-inf"))


@gluon.jit
def _soften(s, m, denom, scale_log2, EDGE: gl.constexpr):
    """Do one step of the online softmax; logits come in as products, unscaled."""
    m_new = gl.maximum(m, gl.max(s, 1) * scale_log2)
    m_safe = m_new
    if EDGE:  # only there can a row have seen nothing yet
        m_safe = gl.where(m_new == float("-inf"), 0.0, m_new)
    p = gl.exp2(s * scale_log2 - m_safe[:, None])
    alpha = gl.exp2(m - m_safe)
    return p, alpha, m_new, denom * alpha + gl.sum(p, 1)


@gluon.jit
def _pin(x, nowhere):
    """Keep what comes after from moving before x is there.

    The assembler would wait for the tensor cores first and do the exponentials behind:
    it is free to, and nothing would overlap. A store that depends on their sum holds
    the order. It is never done: no sum of exponentials is below 0.
    """
    return gl.inline_asm_elementwise(
        "{ .reg .pred wrong; setp.lt.s32 wrong, $1, 0; "
        "@wrong st.volatile.global.b32 [$2], $1; mov.b32 $0, $1; }",
        "=f,r,l", [x.to(gl.int32, bitcast=True), nowhere], dtype=gl.float32,
        is_pure=False, pack=1,
    )  # fmt: skip


@gluon.jit
def _step(
    i, acc, p, m, denom, q, rows, shared,
    BLOCK_N: gl.constexpr, STAGES: gl.constexpr, EDGE: gl.constexpr,
    C: gl.constexpr, CONSUMERS: gl.constexpr, IN_TURN: gl.constexpr,
    S: gl.constexpr, OUT: gl.constexpr, P: gl.constexpr,
):  # fmt: skip
    """Overlap: logits of tile i, and tile i - 1's weights times its values."""
    tiles, bars, numbers = shared
    _, nowhere, _, k_tiles, v_tiles = tiles
    _, k_full, k_empty, v_full, v_empty, turns = bars
    _, _, _, _, steps, _, _, kv_len, last, scale_log2 = numbers
    stage, phase = i % STAGES, (i // STAGES) & 1
    before, before_phase = (i - 1) % STAGES, ((i - 1) // STAGES) & 1
    mbarrier.wait(k_full.index(stage), phase)
    k = k_tiles.index(stage).reshape([BLOCK_N, q.shape[1]])
    none = gl.zeros([ROWS, BLOCK_N], gl.float32, S)
    if IN_TURN:
        mbarrier.wait(turns.index(C), (i - 1) & 1)
    s = warpgroup_mma(q, k.permute((1, 0)), none, use_acc=False, is_async=True)
    mbarrier.wait(v_full.index(before), before_phase)
    v = v_tiles.index(before).reshape([BLOCK_N, q.shape[1]])
    acc = warpgroup_mma(p, v, acc, is_async=True)
    if IN_TURN:
        mbarrier.arrive(turns.index((C + 1) % CONSUMERS), count=1)
    s = warpgroup_mma_wait(1, deps=[s])
    if EDGE:
        s = _hide(s, rows, (steps - 1 - i) * BLOCK_N, kv_len, last, BLOCK_N, S)
    weights, alpha, m, denom = _soften(s, m, denom, scale_log2, EDGE)
    later = gl.convert_layout(weights.to(q.dtype), P)
    denom = _pin(denom, nowhere)
    mbarrier.arrive(k_empty.index(stage), count=1)
    acc, p, later, denom = warpgroup_mma_wait(0, deps=[acc, p, later, denom])
    mbarrier.arrive(v_empty.index(before), count=1)
    acc = acc * gl.convert_layout(alpha, gl.SliceLayout(1, OUT))[:, None]
    return acc, later, m, denom


@gluon.jit
def _consume(
    shared, D: gl.constexpr, BLOCK_N: gl.constexpr, STAGES: gl.constexpr,
    CONSUMERS: gl.constexpr, IN_TURN: gl.constexpr, C: gl.constexpr,
):  # fmt: skip
    """Own 64 queries: softmax(Q K^T) V over all tiles of keys."""
    tiles, bars, numbers = shared
    out_desc, lse_ptr, q_tiles, k_tiles, v_tiles = tiles
    q_ready, k_full, k_empty, v_full, _, turns = bars
    b, h, plane, m0, steps, whole, q_len, kv_len, last, scale_log2 = numbers
    S: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    OUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    P: gl.constexpr = gl.DotOperandLayout(0, OUT, 2)
    row: gl.constexpr = gl.SliceLayout(1, S)
    rows = m0 + C * ROWS + gl.arange(0, ROWS, row)
    q = q_tiles.index(C).reshape([ROWS, D])
    m = gl.full([ROWS], float("-inf"), gl.float32, row)
    denom = gl.zeros([ROWS], gl.float32, row)
    acc = gl.zeros([ROWS, D], gl.float32, OUT)

    mbarrier.wait(q_ready.index(C), 0)
    mbarrier.wait(k_full.index(0), 0)
    k = k_tiles.index(0).reshape([BLOCK_N, D])
    none = gl.zeros([ROWS, BLOCK_N], gl.float32, S)
    s = warpgroup_mma(q, k.permute((1, 0)), none, use_acc=False)
    mbarrier.arrive(k_empty.index(0), count=1)
    s = _hide(s, rows, (steps - 1) * BLOCK_N, kv_len, last, BLOCK_N, S)
    weights, _, m, denom = _soften(s, m, denom, scale_log2, True)
    p = gl.convert_layout(weights.to(q.dtype), P)
    if IN_TURN and C == CONSUMERS - 1:
        mbarrier.arrive(turns.index(0), count=1)
    for i in range(1, steps - whole):
        acc, p, m, denom = _step(
            i, acc, p, m, denom, q, rows, shared, BLOCK_N, STAGES,
            True, C, CONSUMERS, IN_TURN, S, OUT, P,
        )  # fmt: skip
    for i in range(steps - whole, steps):
        acc, p, m, denom = _step(
            i, acc, p, m, denom, q, rows, shared, BLOCK_N, STAGES,
            False, C, CONSUMERS, IN_TURN, S, OUT, P,
        )  # fmt: skip
    stage, phase = (steps - 1) % STAGES, ((steps - 1) // STAGES) & 1
    mbarrier.wait(v_full.index(stage), phase)
    acc = warpgroup_mma(p, v_tiles.index(stage).reshape([BLOCK_N, D]), acc)

    share = gl.where(denom == 0.0, 1.0, denom)
    acc = acc * gl.convert_layout(1.0 / share, gl.SliceLayout(1, OUT))[:, None]
    lse = gl.where(denom == 0.0, float("-inf"), (m + gl.log2(share)) * LN2)
    gl.store(lse_ptr + plane.to(gl.int64) * q_len + rows, lse, mask=rows < q_len)
    q.store(acc.to(q.dtype))  # Q is not needed any more: its place takes the output
    fence_async_shared()
    tma.async_copy_shared_to_global(
        out_desc, [b, h, m0 + C * ROWS, 0], q_tiles.index(C)
    )
    tma.store_wait(0)


@gluon.jit
def _forward_kernel(
    q_desc, k_desc, v_desc, out_desc, lse_ptr, heads, group, q_len, kv_len, last,
    scale_log2, D: gl.constexpr, BLOCK_N: gl.constexpr, STAGES: gl.constexpr,
    CONSUMERS: gl.constexpr, BOUNDED: gl.constexpr, IN_TURN: gl.constexpr,
    REGISTERS: gl.constexpr,
):  # fmt: skip
    BLOCK_M: gl.constexpr = CONSUMERS * ROWS
    tiles = gl.cdiv(q_len, BLOCK_M)
    pid = gl.program_id(0)
    m0 = (tiles - 1 - pid % tiles) * BLOCK_M
    plane = pid // tiles
    b, h = plane // heads, plane % heads
    kv_h = h // group
    steps, whole = _steps(m0, q_len, kv_len, last, BLOCK_M, BLOCK_N, BOUNDED)

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
    k_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], bar)
    k_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], bar)
    v_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], bar)
    v_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], bar)
    turns = gl.allocate_shared_memory(gl.int64, [CONSUMERS, 1], bar)
    for i in gl.static_range(CONSUMERS):
        mbarrier.init(q_ready.index(i), count=1)
        mbarrier.init(turns.index(i), count=1)
    for i in gl.static_range(STAGES):
        mbarrier.init(k_full.index(i), count=1)
        mbarrier.init(k_empty.index(i), count=CONSUMERS)
        mbarrier.init(v_full.index(i), count=1)
        mbarrier.init(v_empty.index(i), count=CONSUMERS)
    fence_async_shared()

    shared = (
        (out_desc, lse_ptr, q_tiles, k_tiles, v_tiles),
        (q_ready, k_full, k_empty, v_full, v_empty, turns),
        (b, h, plane, m0, steps, whole, q_len, kv_len, last, scale_log2),
    )
    asked = (
        q_desc, k_desc, v_desc, q_tiles, k_tiles, v_tiles,
        (q_ready, k_full, k_empty, v_full, v_empty), (b, h, kv_h, m0, steps),
    )  # fmt: skip
    if CONSUMERS == 2:
        gl.warp_specialize([
            (_consume, (shared, D, BLOCK_N, STAGES, CONSUMERS, IN_TURN, 0)),
            (_consume, (shared, D, BLOCK_N, STAGES, CONSUMERS, IN_TURN, 1)),
            (_producer, (asked, BLOCK_N, STAGES, CONSUMERS)),
        ], [4, 1], [REGISTERS, 24])  # fmt: skip
    else:
        gl.warp_specialize([
            (_consume, (shared, D, BLOCK_N, STAGES, CONSUMERS, IN_TURN, 0)),
            (_consume, (shared, D, BLOCK_N, STAGES, CONSUMERS, IN_TURN, 1)),
            (_consume, (shared, D, BLOCK_N, STAGES, CONSUMERS, IN_TURN, 2)),
            (_producer, (asked, BLOCK_N, STAGES, CONSUMERS)),
        ], [4, 4, 1], [REGISTERS, REGISTERS, 24])  # fmt: skip


def refuses(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, options: Options
) -> str | None:
    """Say why this kernel cannot do what is asked; None where it can."""
    if q.device.type != "cuda":
        return "it runs on a GPU only, and under no interpreter"
    if torch.cuda.get_device_capability(q.device)[0] != 9:
        return "it is for Hopper (compute capability 9.0): wgmma is nowhere else"
    if q.dtype not in (torch.float16, torch.bfloat16):
        return f"it takes float16 and bfloat16, not {q.dtype}"
    if q.shape[3] not in (64, 128):
        return f"it takes head_dim 64 and 128, not {q.shape[3]}"
    if not options.plain:
        return "it takes no mask, padding, window or dropout"
    if options.scale <= 0 or not q.numel() or not k.numel():
        return "it wants a scale above 0, a query and a key"
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if lacks := out_of_reach(tensor):
            return f"TMA wants {lacks[0]}, and {name} has {lacks[1]}"
    return None


def out_of_reach(tensor: torch.Tensor) -> tuple[str, str] | None:
    """Say what TMA wants of 16-bit numbers and what a tensor has; None if alike."""
    strides, shape = tensor.stride()[:3], tensor.shape[:3]
    if tensor.data_ptr() % 16 or any(stride % 8 for stride in strides):
        return "rows at multiples of 16 bytes", "others"
    if any(s == 0 and n > 1 for s, n in zip(strides, shape, strict=True)):
        # Nobody says that a stride may be 0, or that it may not.
        return "each row in a place of its own", "an expanded one"
    return None


def described(
    tensor: torch.Tensor, rows: int, columns: int | None = None
) -> TensorDescriptor:
    """Describe tiles of (batch, heads, length, head_dim) to the TMA engine."""
    block = [1, 1, rows, columns or tensor.shape[3]]
    kind = gl.float16 if tensor.dtype == torch.float16 else gl.bfloat16
    layout = gl.NVMMASharedLayout.get_default_for(block, kind)
    return TensorDescriptor.from_tensor(tensor, block, layout)


def forward_gluon(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, options: Options,
    consumers: int = 2, block_n: int = 128, stages: int = 2,
    in_turn: bool | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Launch the kernel; ask ``refuses`` beforehand whether it can.

    ``in_turn`` lets consumers take turns at the tensor cores: on an H200 at head_dim
    128 5 to 7% faster in one run and the same in another, 1 to 3% slower at 64.
    """
    batch, heads, q_len, head_dim = q.shape
    kv_len = k.shape[2]
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    rows = ROWS.value
    bounded = options.bounded[1]
    grid = (triton.cdiv(q_len, rows * consumers) * batch * heads,)
    held(_forward_kernel)[grid](
        described(q, rows), described(k, block_n), described(v, block_n),
        described(out, rows), lse, heads, heads // k.shape[1], q_len, kv_len,
        options.last if bounded else UNBOUNDED, options.scale * LOG2E,
        D=head_dim, BLOCK_N=block_n, STAGES=stages, CONSUMERS=consumers,
        BOUNDED=bounded, IN_TURN=head_dim == 128 if in_turn is None else in_turn,
        REGISTERS=240 if consumers == 2 else 160, num_warps=4,
    )  # fmt: skip
    return out, lse
