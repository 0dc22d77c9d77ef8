"""Candidates for the forward pass at head_dim 64, and what they must be right on.

The budget of a tile of 64 queries by 128 keys, in cycles of one SM, of which each of
four sub-partitions holds one warp of every consumer (counted, not measured):

    tensor cores     2 * 64 * 128 * 64 multiply-adds at 2048 a cycle       512
    exponentials     64 * 128 at 16 a cycle (programming guide, 9.0)       512
    instructions     a warp's, one a cycle: today 456, three consumers     400
      FFMA, FADD, FMUL at 1 cycle                                          164
      FMNMX, F2FP at 2 cycles                                              200
      of them acc's rescaling; a lazy one would save at most               32
    shared memory    Q and K 24 KiB, V 16 KiB at 128 bytes                 320

Measured today: 512 / 48.72% (counters, gluon_together_64) = 1051. No unit is full; two
warps on a sub-partition wait for their own results. ``forward_model`` plays that and
says 670 to 770 for three or four consumers that take turns, 1.35 to 1.55 of today, and
1.05 to 1.6 without turns. But cuDNN, which those who build the chip tuned, is no faster
than today's kernel (results, cudnn_64_full): something may be at work that the model
leaves out. What is predicted is therefore less than it says.

Left for later, if these win: programs that stay on their SM (of 32 waves, as 16,384
tokens and tiles of 128 queries give, the last is nearly empty), and a lazy rescaling.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.nn.attention import SDPBackend

from benchmarks._attention import options_of, sdpa
from benchmarks._flash_attention_triton_errors import standard
from benchmarks.candidates.hopper_hd64 import forward_hd64
from benchmarks.candidates.interface import Proposal, Results, Shape
from solutions.flash_attention_triton.hopper import forward_gluon
from solutions.flash_attention_triton.options import Options

REPLACES = "solutions.flash_attention_triton.hopper.forward_gluon"
Heads = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Given:
    """Tensors of a shape, and the options that go with it."""

    shape: Shape
    heads: Heads
    options: Options


def prepare(shape: Shape, device: str = "cuda") -> Given:
    """Draw q, k and v, the same whenever the shape is the same."""
    generator = torch.Generator(device).manual_seed(zlib.crc32(shape.label.encode()))

    def draw(heads: int, length: int) -> torch.Tensor:
        size = (shape.batch, heads, length, shape.head_dim)
        return torch.randn(size, device=device, generator=generator)

    q, k = draw(shape.heads, shape.q_len), draw(shape.kv_heads, shape.kv_len)
    v = draw(shape.kv_heads, shape.kv_len)
    if shape.largest is not None:
        group = shape.heads // shape.kv_heads
        logits = q @ k.repeat_interleave(group, 1).mT / shape.head_dim**0.5
        q = q * (shape.largest / logits.abs().max())
    heads = (q.to(shape.dtype), k.to(shape.dtype), v.to(shape.dtype))
    return Given(shape, heads, options_of(heads, shape.causal))


def exact(given: Given) -> tuple[Results, Mapping[str, float]]:
    """Attend in float64; allow twice the error of weights rounded to the dtype.

    Those are computed in float32, so that large logits do not excuse anything.
    """
    q, k, v = given.heads
    causal = given.shape.causal
    out, lse = standard(q.double(), k.double(), v.double(), causal=causal)
    eye = torch.eye(k.shape[2], device=k.device).expand(*k.shape[:2], -1, -1)
    weights, _ = standard(q.float(), k.float(), eye, causal=causal)
    group = q.shape[1] // k.shape[1]
    rounded = weights.to(q.dtype).float() @ v.float().repeat_interleave(group, 1)
    worst = (rounded.to(q.dtype).double() - out).abs().max()
    high = lse[lse.isfinite()].abs().max() if bool(lse.isfinite().any()) else 0.0
    allowed = {
        "out": 2 * float(worst) + torch.finfo(q.dtype).eps + 2e-6,
        "lse": 1e-4 + 1e-5 * float(high),
    }
    return {"out": out, "lse": lse}, allowed


def _call(run: Callable[..., Any], given: Given, **knobs: Any) -> Callable[[], Results]:
    def call() -> Results:
        out, lse = run(*given.heads, given.options, **knobs)
        return {"out": out, "lse": lse}

    return call


def _solution(given: Given) -> Callable[[], Results]:
    return _call(forward_gluon, given)


def _cudnn(given: Given) -> Callable[[], Results]:
    causal = bool(given.shape.causal)
    return lambda: {
        "out": sdpa(SDPBackend.CUDNN_ATTENTION, *given.heads, is_causal=causal)
    }


def flops(shape: Shape) -> float:
    """Count what is due: two products of every query with every key."""
    due = 4.0 * shape.batch * shape.heads * shape.q_len * shape.kv_len * shape.head_dim
    return due / (2 if shape.causal else 1)


CHECKED = (
    Shape(1, 2, 2, 384, 512, 64),
    Shape(2, 4, 2, 100, 130, 64),
    Shape(1, 3, 1, 1, 70, 64),
    Shape(1, 2, 2, 1500, 1111, 64),
    Shape(1, 2, 1, 257, 1, 64),
    Shape(1, 2, 2, 700, 900, 64, largest=1e4),
    Shape(1, 2, 2, 1024, 1024, 64, True),
    Shape(2, 4, 2, 333, 333, 64, True),
    Shape(1, 2, 2, 65, 700, 64, True),
    Shape(1, 2, 1, 1000, 600, 64, True, dtype=torch.float16),
    Shape(1, 2, 2, 300, 901, 64, "bottom-right"),
    Shape(1, 2, 2, 901, 300, 64, "bottom-right"),
    Shape(1, 2, 2, 900, 900, 64, True, largest=1e4),
)
TIMED = (
    Shape(1, 32, 32, 16384, 16384, 64),
    Shape(1, 32, 32, 16384, 16384, 64, True),
    Shape(4, 32, 32, 4096, 4096, 64),
    Shape(4, 32, 32, 4096, 4096, 64, True),
)


def _propose(name: str, gain: float, because: str, **knobs: Any) -> Proposal:
    return Proposal(
        name=name,
        replaces=REPLACES,
        predicted={shape.label: gain for shape in TIMED},
        because=because,
        prepare=prepare,
        run=partial(_call, forward_hd64, **knobs),
        solution=_solution,
        peer=_cudnn,
        peer_name="cuDNN",
        exact=exact,
        checked=CHECKED,
        timed=TIMED,
        flops=flops,
    )


CANDIDATES = (
    _propose(
        "hd64_three", 1.1,
        "A third consumer works where two wait; a third less K and V through L2.",
        consumers=3, block_n=128, stages=4,
    ),
    _propose(
        "hd64_three_in_turn", 1.15,
        "As hd64_three; turns keep three consumers from wanting the same unit at once.",
        consumers=3, block_n=128, stages=4, in_turn=True,
    ),
    _propose(
        "hd64_three_poly", 1.18,
        "As hd64_three_in_turn; 50 exponentials a tile and thread instead of 66.",
        consumers=3, block_n=128, stages=4, in_turn=True, poly=True,
    ),
    _propose(
        "hd64_four", 1.15,
        "Four consumers and tiles of 64 keys: half the registers for logits, half the "
        "loop in the instruction cache, but twice as many barriers.",
        consumers=4, block_n=64, stages=8, in_turn=True,
    ),
)  # fmt: skip
