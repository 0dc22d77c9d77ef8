"""Buckets in one buffer, mended: each has a place of its own, and each step counts."""

# ruff: noqa: F821  bucket_gradients is an exercise of its own

from __future__ import annotations

import torch
import torch.distributed as dist


# [exercise:stale_bucket]
def stale_bucket(parameters, limit):
    """Average gradients in buckets that are allocated once."""
    sizes = [p.numel() * p.element_size() for p in parameters]
    buckets = bucket_gradients(sizes, limit)
    numbers = [sum(parameters[i].numel() for i in b) for b in buckets]
    # [hole]
    # [broken]
    # buffer = torch.empty(max(numbers))
    # places = [buffer[:number] for number in numbers]
    # came, handles = [0] * len(buckets), [None] * len(buckets)
    #
    # def ready(b):
    #     def hook(_):
    #         came[b] += 1
    #         if came[b] == len(buckets[b]):
    #             grads = [parameters[i].grad for i in buckets[b]]
    #             flat = [grad.flatten() for grad in grads]
    #             torch.cat(flat, out=places[b])
    #             handles[b] = dist.all_reduce(places[b], async_op=True)
    #     return hook
    #
    # def finish():
    #     for bucket, place, handle in zip(buckets, places, handles):
    #         handle.wait()
    #         place /= dist.get_world_size()
    #         parts = place.split([parameters[i].numel() for i in bucket])
    #         for i, part in zip(bucket, parts):
    #             parameters[i].grad.copy_(part.view_as(parameters[i]))
    # [/broken]
    buffer = torch.empty(sum(numbers))
    places = buffer.split(numbers)
    came, handles = [0] * len(buckets), [None] * len(buckets)

    def ready(b):
        def hook(_):
            came[b] += 1
            if came[b] == len(buckets[b]):
                grads = [parameters[i].grad for i in buckets[b]]
                flat = [grad.flatten() for grad in grads]
                torch.cat(flat, out=places[b])
                handles[b] = dist.all_reduce(places[b], async_op=True)

        return hook

    def finish():
        for bucket, place, handle in zip(buckets, places, handles, strict=True):
            handle.wait()
            place /= dist.get_world_size()
            parts = place.split([parameters[i].numel() for i in bucket])
            for i, part in zip(bucket, parts, strict=True):
                parameters[i].grad.copy_(part.view_as(parameters[i]))
        came[:] = [0] * len(buckets)

    # [/hole]
    for b, bucket in enumerate(buckets):
        for i in bucket:
            parameters[i].register_post_accumulate_grad_hook(ready(b))
    return finish


# [/exercise]
