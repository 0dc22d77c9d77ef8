"""Candidates for attention's backward at head_dim 128: five products, not seven.

Today's backward makes two passes, and so computes S and dP twice: 7 products of which 5
are due. ``backward_fused`` makes one, and adds dQ up in global memory.

Budget of one step, 64 queries by 128 keys, on one SM (counted, not measured):

    tensor cores      5 products of 64 * 128 * 128, 2,048 a cycle       2,560 cycles
    shared memory     S, dP, dQ 64 KiB each; dV, dK 32 KiB each; dS, Q
                      and dO written: 304 KiB at 128 bytes a cycle      2,432
    exponentials      64 * 128, 16 a cycle                                512
    all instructions  about 400 of 8 warps, on 4 schedulers               800
    dQ added at L2    32 KiB: 13 bytes a cycle and SM, were the tensor
                      cores at their peak; Q and dO come in at the same rate

    registers         dK, dV 64 each, S 32, dP 32, P and dS 16 each: 224 of 240
    shared memory     K, V 32 KiB each; Q, dO, dS twice, 32 KiB each: 161 of 227 KiB

Tensor cores and shared memory are nearly level, so neither will reach its peak. At 57%
a step is 4,500 cycles: 500 TFLOP/s at the 1.65 GHz of attention's forward. Before and
after the kernel 0.5 GB move, 0.12 ms. Predicted: 1.55 to 1.7 of FlashAttention-2.

What order costs, by a model of the launch (132 SMs, a program let in half a step after
the one before): 1 to 3%, but 7% for 16,384 causal tokens. There the programs of a head
must start with the shortest, so that who is waited for is ahead, and the longest are
left for the end. The other way round a program waits at every tile: 1.75 times as long.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch.nn.attention import SDPBackend

from benchmarks._attention import draw, options_of, sdpa
from benchmarks.candidates.backward_launch import Gradients, backward_fused
from benchmarks.candidates.backward_triton import backward_triton_fused
from benchmarks.candidates.interface import Proposal, Results, Shape
from solutions.flash_attention_triton import backward, forward
from solutions.flash_attention_triton.options import Causal, Options

Kernel = Callable[..., Gradients]
LITTLE = 2**28
"""Weights, of all heads, that the formula may hold at once."""


@dataclass(frozen=True)
class Given:
    """Tensors of a shape, and what the forward pass made of them."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    grad: torch.Tensor
    out: torch.Tensor
    lse: torch.Tensor
    causal: Causal
    options: Options


def prepare(shape: Shape) -> Given:
    """Draw q, k, v and the gradient of the output, and run the forward pass."""
    sizes = (shape.batch, shape.heads, shape.q_len, shape.head_dim)
    q, grad = draw(*sizes, count=2, dtype=shape.dtype)
    sizes = (shape.batch, shape.kv_heads, shape.kv_len, shape.head_dim)
    k, v = draw(*sizes, count=2, dtype=shape.dtype)
    if shape.largest is not None:
        q = q * (shape.largest / float(logits(q, k).abs().max()))
    options = options_of((q, k, v), shape.causal)
    if shape.batch * shape.heads * shape.q_len * shape.kv_len <= LITTLE:
        out, lse = attend(q, k, v, options)
    else:
        out, lse = forward(q, k, v, causal=shape.causal)
    return Given(q, k, v, grad, out, lse, shape.causal, options)


def logits(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """Multiply every query by every key of its group, and scale."""
    group = q.shape[1] // k.shape[1]
    return q @ k.repeat_interleave(group, 1).mT / math.sqrt(q.shape[3])


def weights(
    q: torch.Tensor, k: torch.Tensor, options: Options
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return softmax's weights and its log-sum-exp; zeros where nothing is seen."""
    s = logits(q, k)
    rows = torch.arange(s.shape[2], device=s.device)[:, None]
    columns = torch.arange(s.shape[3], device=s.device)
    s = s.masked_fill(columns > rows + options.last, -math.inf)
    dead = (s == -math.inf).all(-1, keepdim=True)
    p = torch.softmax(s.masked_fill(dead, 0.0), -1).masked_fill(dead, 0.0)
    return p, s.logsumexp(-1)


def attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, options: Options
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attend by the formula in float32: as ``forward``, with nothing to compile."""
    p, lse = weights(q.float(), k.float(), options)
    group = q.shape[1] // k.shape[1]
    return (p @ v.float().repeat_interleave(group, 1)).to(q.dtype), lse


def formula(given: Given, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Let torch differentiate the formula; a row that sees nothing gives 0."""
    leaves = [t.to(dtype).requires_grad_() for t in (given.q, given.k, given.v)]
    q, k, v = leaves
    p, _ = weights(q, k, given.options)
    out = p @ v.repeat_interleave(q.shape[1] // k.shape[1], 1)
    gradients = torch.autograd.grad(out, leaves, given.grad.to(dtype))
    return dict(zip(("dq", "dk", "dv"), gradients, strict=True))


def exact(given: Given) -> tuple[Results, dict[str, float]]:
    """Return float64 gradients, and twice the formula's own error and a rounding.

    One key has all the weight: dq and dk are then 0, by luck without an error in the
    formula, and a few roundings of float32 in a kernel. Hence the least largest.
    """
    right, own = formula(given, torch.float64), formula(given, given.q.dtype)
    rounding = torch.finfo(given.q.dtype).eps
    allowed = {
        name: 2 * float((own[name].double() - right[name]).abs().max())
        + rounding * max(float(right[name].abs().max()), 0.01)
        for name in right
    }
    return right, allowed


def by(kernel: Kernel, given: Given) -> Callable[[], Results]:
    """Make the call of a candidate."""

    def run() -> Results:
        gradients = kernel(
            given.grad, given.q, given.k, given.v, given.out, given.lse, given.options
        )
        return dict(zip(("dq", "dk", "dv"), gradients, strict=True))

    return run


def solution(given: Given) -> Callable[[], object]:
    """Make today's call."""
    return lambda: backward(
        given.grad, given.q, given.k, given.v, given.out, given.lse,
        causal=given.causal,
    )  # fmt: skip


def peer(given: Given) -> Callable[[], object]:
    """Make the call of FlashAttention-2's backward, in torch."""
    leaves = [t.clone().requires_grad_() for t in (given.q, given.k, given.v)]
    flash = SDPBackend.FLASH_ATTENTION
    out = sdpa(flash, *leaves, is_causal=bool(given.causal))
    return lambda: torch.autograd.grad(out, leaves, given.grad, retain_graph=True)


def flops(shape: Shape) -> float:
    """Count what is due: five products, half of them under a causal mask."""
    products = 10.0 * shape.batch * shape.heads * shape.q_len * shape.kv_len
    return products * shape.head_dim / (2 if shape.causal else 1)


TIMED = (
    Shape(4, 16, 16, 4096, 4096, 128),
    Shape(4, 16, 16, 4096, 4096, 128, True),
    Shape(1, 16, 16, 16384, 16384, 128),
    Shape(1, 16, 16, 16384, 16384, 128, True),
)
CHECKED = (
    Shape(2, 4, 4, 512, 512, 128),
    Shape(2, 4, 4, 512, 512, 128, True),
    Shape(1, 1, 1, 1, 1, 128, True),
    Shape(1, 4, 2, 333, 517, 128),
    Shape(1, 4, 2, 333, 517, 128, "bottom-right"),
    Shape(1, 6, 2, 700, 300, 128, "bottom-right"),  # 400 queries see nothing
    Shape(1, 2, 1, 64, 1000, 128, True),  # and most keys are seen by none
    Shape(1, 4, 4, 512, 512, 128, True, largest=100.0),
    Shape(1, 4, 2, 333, 517, 128, True, dtype=torch.float16),
    Shape(2, 16, 16, 2048, 2048, 128),  # more programs than there are SMs
    Shape(2, 16, 16, 2048, 2048, 128, True),
)


def proposed(name: str, kernel: Kernel, because: str, *ratios: float) -> Proposal:
    """Name a candidate, with its predicted ratio at each timed shape."""
    labels = [shape.label for shape in TIMED]
    return Proposal(
        name=name, replaces="solutions.flash_attention_triton.backward",
        predicted=dict(zip(labels, ratios, strict=True)), because=because,
        prepare=prepare, run=partial(by, kernel), solution=solution, peer=peer,
        peer_name="FA2", exact=exact, checked=CHECKED, timed=TIMED, flops=flops,
    )  # fmt: skip


CANDIDATES = (
    proposed(
        "backward_ordered", backward_fused,
        "Five products instead of seven, warps with roles; dQ summed in a fixed order, "
        "so that every run gives the same bits.",
        1.34, 1.36, 1.38, 1.23,
    ),
    proposed(
        "backward_unordered", partial(backward_fused, ordered=False),
        "The same, but dQ is summed in whatever order the programs come.",
        1.39, 1.39, 1.41, 1.32,
    ),
    proposed(
        "backward_bulk", partial(backward_fused, ordered=False, bulk=True),
        "Unordered, and TMA adds to dQ: no consumer waits at L2's door, but 64 KiB "
        "more pass through shared memory every step, 512 cycles of its 4,500.",
        1.35, 1.35, 1.37, 1.28,
    ),
    proposed(
        "backward_bulk_ordered", partial(backward_fused, bulk=True),
        "The same, in a fixed order: the keeper waits for each sum to be there.",
        1.30, 1.31, 1.33, 1.19,
    ),
    proposed(
        "backward_one_pass", backward_triton_fused,
        "Five products in plain Triton, dQ summed by TMA; every step waits for its "
        "exponentials and for dQ, with no other warps to fill the gap.",
        1.15, 1.15, 1.18, 1.15,
    ),
)  # fmt: skip
