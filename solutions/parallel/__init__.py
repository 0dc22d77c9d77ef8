"""Training on many processors: data, tensor and sequence parallel. Chapter 16.

    DistributedDataParallel(module)     gradients averaged in buckets, under backward
    ShardedOptimizer(params, AdamW)     the optimizer's state, an n-th on each rank
    ColumnParallelLinear(d, f)          y = x W^T, a part of y's columns on each rank
    RowParallelLinear(f, d)             y = x W^T, a part of x's columns on each rank
    ParallelMLP(d, f)                   both: one all-reduce forward, one backward
    ring_attention(q, k, v)             tokens on each rank, keys and values go round

All take a ``torch.distributed`` group, gloo's on CPUs or NCCL's on GPUs, of any number
of ranks, one among them. What ranks must agree on is compared first, and an error names
what differs, on every rank.

The rungs, in the order in which the chapter climbs them, each one exercise:

    bucket_gradients.py   which gradients travel together
    bucketed_ddp.py       averaged while backward goes on
    column_parallel.py    a product whose columns are spread, and its gradients
    row_parallel.py       a product whose sum is spread: one all-reduce
    ring_forward.py       keys and values passed on while they are attended to

``_collectives.py`` is the one place that names a library of messages.

When not to use it: where the model, its optimizer's state and a batch fit one GPU and
one is fast enough; tensor parallel over anything slower than NVLink; ring attention
where a rank's tokens are so few that their products are over before the keys come.
"""

from __future__ import annotations

import kernelwright  # noqa: F401  before Triton: without a GPU its interpreter is chosen
from solutions.parallel.ddp import DistributedDataParallel
from solutions.parallel.layers import (
    ColumnParallelLinear,
    ParallelMLP,
    RowParallelLinear,
)
from solutions.parallel.ring import join_tokens, ring_attention, split_tokens
from solutions.parallel.sharded import ShardedOptimizer

__all__ = [
    "ColumnParallelLinear",
    "DistributedDataParallel",
    "ParallelMLP",
    "RowParallelLinear",
    "ShardedOptimizer",
    "join_tokens",
    "ring_attention",
    "split_tokens",
]
