"""Which gradients travel together: buckets, filled from the last parameter on."""

from __future__ import annotations


# [exercise:bucket_gradients]
def bucket_gradients(sizes: list[int], limit: int) -> list[list[int]]:
    """Assign parameters to buckets, the last parameter first.

    sizes holds each parameter's bytes, in the order of the model; a
    bucket has at most limit bytes, or one parameter that is larger.
    """
    # [hole]
    buckets, filled = [], 0
    for number in reversed(range(len(sizes))):
        if not buckets or filled + sizes[number] > limit:
            buckets.append([])
            filled = 0
        buckets[-1].append(number)
        filled += sizes[number]
    return buckets
    # [/hole]


# [/exercise]
