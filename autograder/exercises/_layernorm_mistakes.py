"""What known mistakes make of a layer norm, and the sentences that name them."""

from __future__ import annotations

import torch
from torch.nn.functional import pad

from autograder.drawing import tensor
from autograder.exercise import Arguments, NearMiss
from autograder.exercises._layernorm import WARP, Parts, affine, mistaken, scaled


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


LAYER_NORM_MISTAKES = (
    NearMiss(
        "one less",
        scaled(
            # A row of one element has 0 / 0 there.
            lambda p: (
                p.variance * p.x.shape[1] / p.x.new_tensor(p.x.shape[1] - 1) + p.eps
            ).rsqrt()
        ),
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
