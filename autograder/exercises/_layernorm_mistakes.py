"""What known mistakes make of a layer norm, and the sentences that name them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn.functional import pad

from autograder.drawing import tensor
from autograder.exercise import Arguments, NearMiss, Outputs
from autograder.exercises._layernorm import (
    EPS,
    WARP,
    Parts,
    affine,
    mistaken,
    scaled,
)


def missing_counted(most: int) -> NearMiss:
    """Return the mistake of a second sum over all ``most`` places, holding 0 or not."""

    def rstd(p: Parts) -> torch.Tensor:
        columns = p.x.shape[1]
        past = most - columns
        return (p.variance + past * p.mean**2 / columns + p.eps).rsqrt()

    return NearMiss(
        "missing elements counted",
        scaled(rstd),
        "The sum of squares counts elements that do not exist: past the row's end "
        "v[k] - mean is -mean, not 0. Guard the second sum too.",
    )


def down(lanes: torch.Tensor) -> torch.Tensor:
    """Add up lanes as __shfl_down_sync does: past the end a lane gets its own value."""
    for offset in (16, 8, 4, 2, 1):
        below = torch.cat((lanes[:, offset:], lanes[:, -offset:]), 1)
        lanes = lanes + below
    return lanes


def summed(values: torch.Tensor) -> torch.Tensor:
    """Add rows up in fp32 as a warp does: a lane's own, then by halves."""
    rounds = -(-values.shape[1] // WARP)
    own = pad(values, (0, rounds * WARP - values.shape[1]))
    lanes = own[:, :WARP].clone()
    for k in range(1, rounds):
        lanes = lanes + own[:, WARP * k : WARP * (k + 1)]
    while lanes.shape[1] > 1:
        half = lanes.shape[1] // 2
        lanes = lanes[:, :half] + lanes[:, half:]
    return lanes


def _by_lane(values: torch.Tensor) -> torch.Tensor:
    """Add up each lane's own elements: (rows, 32)."""
    padded = pad(values, (0, -values.shape[1] % WARP))
    return torch.sum(padded.reshape(len(padded), -1, WARP), 1)


def _lane_0_knows(p: Parts, arguments: Arguments) -> torch.Tensor:
    """Return the mistake of a sum that only lane 0 has whole."""
    columns = p.x.shape[1]
    lane = torch.arange(columns) % WARP
    d = p.x - (down(_by_lane(p.x)) / columns)[:, lane]
    variance = (down(_by_lane(d * d)) / columns)[:, lane]
    return affine(d * (variance + p.eps).rsqrt(), arguments)


def _lane_0_has_the_mean(p: Parts, arguments: Arguments) -> torch.Tensor:
    """Return the mistake of a mean that only lane 0 has whole."""
    columns = p.x.shape[1]
    lane = torch.arange(columns) % WARP
    return _about(p, (down(_by_lane(p.x)) / columns)[:, lane], arguments)


def _lane_s_own(
    handed_on: Callable[[torch.Tensor], torch.Tensor],
) -> Callable[[Arguments], Outputs]:
    """Return the mistake of a sum of squares that is not the same in all lanes."""

    def output(p: Parts, arguments: Arguments) -> torch.Tensor:
        columns = p.x.shape[1]
        # A lane with one small deviation divides by it: the mean's last bit shows.
        x = p.x.float()
        d = (x - summed(x) / columns).double()
        lanes = handed_on(_by_lane(d * d))[:, torch.arange(columns) % WARP]
        return affine(d * (lanes / columns + p.eps).rsqrt(), arguments)

    return mistaken(output)


def _half_warps(p: Parts, arguments: Arguments) -> torch.Tensor:
    """Return the mistake of shuffles that begin at 8: each half has a sum."""
    columns = p.x.shape[1]
    lane = torch.arange(columns) % WARP

    def halves(values: torch.Tensor) -> torch.Tensor:
        sums = _by_lane(values).view(-1, 2, 16).sum(2)
        return sums[:, lane // 16] / columns

    d = p.x - halves(p.x)
    return affine(d * (halves(d * d) + p.eps).rsqrt(), arguments)


def _means_alone(p: Parts, arguments: Arguments) -> torch.Tensor:
    """Return the mistake of a mean that each lane takes of its own elements."""
    columns = p.x.shape[1]
    lane = torch.arange(columns) % WARP
    return _about(p, (_by_lane(p.x) / columns)[:, lane], arguments)


def _about(p: Parts, mean: torch.Tensor, arguments: Arguments) -> torch.Tensor:
    """Return the rows normalised about something else than their mean."""
    d = p.x - mean
    variance = (d * d).mean(1, keepdim=True)
    return affine(d * (variance + p.eps).rsqrt(), arguments)


ONE_LESS = scaled(
    # A row of one element has 0 / 0 there.
    lambda p: (
        p.variance * p.x.shape[1] / p.x.new_tensor(p.x.shape[1] - 1) + p.eps
    ).rsqrt()
)
"""The variance of a sample, divided by columns - 1."""

LAYER_NORM_MISTAKES = (
    NearMiss(
        "one less",
        ONE_LESS,
        "The sum of squares is divided by columns - 1. Layer norm takes the variance "
        "of exactly these numbers: divide by columns.",
    ),
    NearMiss(
        "no eps",
        scaled(lambda p: p.variance.rsqrt()),
        "eps is not added to the variance: rows that hardly vary come out too large.",
    ),
    NearMiss(
        "eps outside",
        scaled(lambda p: 1 / (p.variance.sqrt() + p.eps)),
        "eps is added to the deviation, behind the square root; it belongs to the "
        "variance, under it.",
    ),
    NearMiss(
        "eps on the inverse",
        scaled(lambda p: p.variance.rsqrt() + p.eps),
        "eps is added to 1 / deviation: it belongs to the variance, inside of rsqrtf.",
    ),
    NearMiss(
        "eps by heart",
        scaled(lambda p: (p.variance + EPS).rsqrt()),
        "1e-5 is added whatever `eps` says: take the kernel's argument.",
    ),
    NearMiss(
        "mean kept",
        mistaken(lambda p, arguments: affine(p.x * p.rstd, arguments)),
        "The rows are scaled and not shifted: the mean is not taken away from x.",
    ),
    NearMiss(
        "variance for deviation",
        scaled(lambda p: 1 / (p.variance + p.eps)),
        "The rows are divided by their variance, not by its square root: rsqrtf.",
    ),
    NearMiss(
        "bias forgotten",
        mistaken(lambda p, arguments: p.h * tensor(arguments, "weight").double()),
        "The bias is missing.",
    ),
    NearMiss(
        "weight forgotten",
        mistaken(lambda p, arguments: p.h + tensor(arguments, "bias").double()),
        "The weight is missing.",
    ),
    NearMiss(
        "squares not divided",
        scaled(lambda p: (p.variance * p.x.shape[1] + p.eps).rsqrt()),
        "The sum of squares is not divided by columns: the variance is their mean.",
    ),
    NearMiss(
        "sum for mean",
        mistaken(lambda p, arguments: _about(p, p.mean * p.x.shape[1], arguments)),
        "The sum of the row is taken away from it: its mean is the sum / columns.",
    ),
    NearMiss(
        "root for its inverse",
        scaled(lambda p: (p.variance + p.eps).sqrt()),
        "The rows are multiplied by their deviation: divide by it, that is, multiply "
        "by rsqrtf, one over the root.",
    ),
    NearMiss(
        "bias before weight",
        mistaken(
            lambda p, arguments: (
                (p.h + tensor(arguments, "bias").double())
                * tensor(arguments, "weight").double()
            )
        ),
        "The bias is multiplied by the weight: first the weight, then the bias is "
        "added.",
    ),
    NearMiss(
        "first row for all",
        mistaken(lambda p, arguments: affine(p.h[:1], arguments).expand_as(p.h)),
        "Every row holds the first one's result: this row begins at row * columns.",
    ),
)

WARP_MISTAKES = (
    missing_counted(1024),
    NearMiss(
        "only lane 0 knows",
        mistaken(_lane_0_knows),
        "Each lane goes on with a sum of its own: after __shfl_down_sync only lane "
        "0 has the whole. With __shfl_xor_sync every lane gets it.",
    ),
    NearMiss(
        "only lane 0 has the mean",
        mistaken(_lane_0_has_the_mean),
        "Each lane takes away a mean of its own: after __shfl_down_sync only lane 0 "
        "has the whole sum. With __shfl_xor_sync every lane gets it.",
    ),
    NearMiss(
        "only lane 0 has the squares",
        _lane_s_own(down),
        "The mean is right in every lane, and the sum of squares only in lane 0, as "
        "__shfl_down_sync leaves it. With __shfl_xor_sync every lane gets it.",
    ),
    NearMiss(
        "squares alone",
        _lane_s_own(lambda lanes: lanes),
        "Each lane goes on with the squares of its own elements: the second sum needs "
        "its five shuffles too.",
    ),
    NearMiss(
        "half warps",
        mistaken(_half_warps),
        "Lanes 0 to 15 have one sum, lanes 16 to 31 another: the first offset is 16, "
        "half a warp.",
    ),
    NearMiss(
        "mean over places",
        mistaken(
            lambda p, arguments: _about(p, p.mean * p.x.shape[1] / 1024, arguments)
        ),
        "The sum of the row is divided by 1,024, the places in `v`: the row has "
        "`columns` elements.",
    ),
    NearMiss(
        "means alone",
        mistaken(_means_alone),
        "Each lane takes away a mean of its own elements alone: the sums of the 32 "
        "lanes must be added first, by five shuffles.",
    ),
)

BLOCK_MISTAKES = (
    missing_counted(8192),
    NearMiss(
        "mean over packs",
        mistaken(lambda p, arguments: _about(p, 4 * p.mean, arguments)),
        "The sum of the row is divided by the number of packs: a pack is four "
        "numbers, divide by columns.",
    ),
    NearMiss(
        "variance over packs",
        scaled(lambda p: (4 * p.variance + p.eps).rsqrt()),
        "The sum of squares is divided by the number of packs: a pack is four "
        "numbers, divide by columns.",
    ),
)
