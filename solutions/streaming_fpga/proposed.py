"""Units that a GPU does not have, modelled: what they would bring two kernels.

Counts come from traces of the course's own kernels; what nobody can count is an
assumption, and stands in a table that the reader moves. It is a model of throughput:
no latency, no launch, no energy.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

import kernelwright as kw

_ROWS = _COLS = 64  # tiles of chapter 10's first kernel


@dataclass(frozen=True)
class Assumptions:
    """What one SM does in a cycle today, and what the proposed units would do.

    Args:
        matrix_flops: of 16-bit products. An H200's data sheet has 989 TFLOP/s for 132
            SMs, which is 4,096 at 1.83 GHz.
        exponentials: special functions; the CUDA programming guide has 16.
        lanes: float32 operations; 128 by the same guide.
        memory_bytes: from device memory; 4.8 TB/s for 132 SMs at 1.83 GHz.
        l2_bytes: from the L2 cache. An assumption.
        overlap: of what can run beside the longest of several parts, the share that
            does. An assumption: 0 adds all up, 1 hides all but the longest.
        unit_scores: scores that a softmax-rescale unit takes in. An assumption.
        listeners: blocks that a streaming unit hands each key to. An assumption.
        routed_bytes: of tokens that a routing unit passes on. An assumption.
    """

    matrix_flops: float = 4096
    exponentials: float = 16
    lanes: float = 128
    memory_bytes: float = 19.9
    l2_bytes: float = 64
    overlap: float = 0.5
    unit_scores: float = 64
    listeners: float = 16
    routed_bytes: float = 64

    def together(self, *parts: float) -> float:
        """Return the cycles of parts that overlap as far as is assumed."""
        longest = max(parts)
        return longest + (1 - self.overlap) * (sum(parts) - longest)


@dataclass(frozen=True)
class AttentionCounts:
    """What chapter 10's first kernel does for one head.

    Args:
        flops: of both products.
        exponentials: one a score, and one a row and tile for the rescale.
        elementwise: scale, maximum, difference and sum of scores; rescaled sums.
        scores: how many.
        loaded: bytes that its programs ask for, by the trace.
        stored: bytes that they store, by the trace.
        keys: bytes of keys and values, each once.
    """

    flops: float
    exponentials: float
    elementwise: float
    scores: float
    loaded: float
    stored: float
    keys: float


@dataclass(frozen=True)
class RoutingCounts:
    """What chapter 14's permutation moves, by the trace.

    Args:
        loaded, stored: bytes that its threads ask for.
        tokens: bytes of all tokens, each once.
        choices: bytes of all choices, each once.
        k: experts of a token.
    """

    loaded: float
    stored: float
    tokens: float
    choices: float
    k: int


@dataclass(frozen=True)
class Proposal:
    """A unit beside today's kernel, in cycles of one SM.

    Args:
        unit, kernel: their names.
        today, proposed: cycles.
        why: which count falls, in words.
    """

    unit: str
    kernel: str
    today: float
    proposed: float
    why: str

    @property
    def gain(self) -> float:
        """How many times as fast it would be."""
        return self.today / self.proposed


def count_attention(n: int = 256, d: int = 64) -> AttentionCounts:
    """Trace attention of one head, n a multiple of 64, and count what it does."""
    from solutions.flash_attention_triton.tiled import flash_kernel

    q, k, v = torch.randn(3, 1, 1, n, d).half()
    out = torch.empty_like(q)
    trace = kw.trace_triton(flash_kernel)[(n // _ROWS, 1)](
        q, k, v, out, n, d**-0.5, D=d, ROWS=_ROWS, COLS=_COLS
    )
    tiles = n // _COLS
    return AttentionCounts(
        flops=4.0 * n * n * d,
        exponentials=n * n + n * tiles,
        elementwise=4.0 * n * n + n * tiles * (d + 1),
        scores=n * n,
        loaded=sum(line.bytes for line in trace.lines if line.op == "load"),
        stored=sum(line.bytes for line in trace.lines if line.op == "store"),
        keys=4.0 * n * d,
    )


def count_routing(
    tokens: int = 64, d: int = 64, experts: int = 4, k: int = 2
) -> RoutingCounts:
    """Trace the permutation of float32 tokens, and count what it moves."""
    chosen = torch.rand(tokens, experts).topk(k).indices.int()
    ends = torch.bincount(chosen.flatten().long(), minlength=experts).cumsum(0).int()
    x, out = torch.randn(tokens, d), torch.empty(tokens * k, d)
    rows = torch.empty(tokens * k, dtype=torch.int32)
    from solutions import moe

    source = Path(moe.__file__).with_name("permute_tokens.cu").read_text()
    kernel = kw.cuda.compile(source, backend="emulator")["permute_tokens"]
    trace = kernel.trace[experts, 256](
        x, chosen.flatten(), ends, rows, out, tokens * k, k, d // 4
    )
    return RoutingCounts(
        loaded=trace.global_load.bytes,
        stored=trace.global_store.bytes,
        tokens=x.nbytes,
        choices=chosen.nbytes,
        k=k,
    )


def proposals(
    attention: AttentionCounts, routing: RoutingCounts, assumed: Assumptions
) -> list[Proposal]:
    """Return what each unit would bring, under these assumptions."""
    matrix = attention.flops / assumed.matrix_flops
    special = attention.exponentials / assumed.exponentials
    vector = attention.elementwise / assumed.lanes
    fetched = (attention.loaded + attention.stored) / assumed.l2_bytes
    today = assumed.together(matrix, special, vector, fetched)
    fused = assumed.together(matrix, attention.scores / assumed.unit_scores, fetched)
    # Queries and outputs pass as before; keys and values once for all that listen.
    others = attention.loaded - _reread(attention)
    heard = others + max(_reread(attention) / assumed.listeners, attention.keys)
    streamed = assumed.together(
        matrix, special, vector, (heard + attention.stored) / assumed.l2_bytes
    )
    moved = (routing.loaded + routing.stored) / assumed.memory_bytes
    # No copy: each token is read where it lies, and passed on k times.
    passed = assumed.together(
        (routing.tokens + routing.choices) / assumed.memory_bytes,
        routing.tokens * routing.k / assumed.routed_bytes,
    )
    return [
        Proposal(
            "softmax-rescale", "attention (chapter 10)", today, fused,
            "exponentials, maxima, sums and rescales leave the SM's lanes",
        ),
        Proposal(
            "streaming", "attention (chapter 10)", today, streamed,
            "keys and values are fetched once for several blocks of queries",
        ),
        Proposal(
            "routing", "permutation (chapter 14)", moved, passed,
            "no permuted copy is stored, and choices are read once",
        ),
    ]  # fmt: skip


def _reread(attention: AttentionCounts) -> float:
    """Return the bytes of keys and values that all programs ask for together.

    Each program reads its own queries once, as many bytes as keys alone have.
    """
    return attention.loaded - attention.keys / 2
