"""Gradients averaged over ranks while backward goes on: hooks, buckets, handles."""

# mypy: ignore-errors

from __future__ import annotations

import torch
import torch.distributed as dist

from solutions.parallel.bucket_gradients import bucket_gradients


# [exercise:bucketed_ddp]
def bucketed_ddp(parameters, limit):
    """Average the parameters' gradients over all ranks, during backward.

    Return a function, finish(), that is called after each backward: it
    waits, and leaves the averages in the parameters' grad.
    """
    # [hole]
    sizes = [p.numel() * p.element_size() for p in parameters]
    buckets = bucket_gradients(sizes, limit)
    missing = [len(bucket) for bucket in buckets]
    sums, handles = [None] * len(buckets), [None] * len(buckets)

    def ready(which):
        def hook(_):
            missing[which] -= 1
            if missing[which] == 0:
                grads = [parameters[i].grad for i in buckets[which]]
                sums[which] = torch.cat([grad.flatten() for grad in grads])
                handles[which] = dist.all_reduce(sums[which], async_op=True)

        return hook

    for which, bucket in enumerate(buckets):
        for i in bucket:
            parameters[i].register_post_accumulate_grad_hook(ready(which))

    def finish():
        for which, bucket in enumerate(buckets):
            handles[which].wait()
            mean = sums[which] / dist.get_world_size()
            parts = mean.split([parameters[i].numel() for i in bucket])
            for i, part in zip(bucket, parts, strict=True):
                parameters[i].grad = part.view_as(parameters[i])
            missing[which] = len(bucket)

    return finish
    # [/hole]


# [/exercise]
