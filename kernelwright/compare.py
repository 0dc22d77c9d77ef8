"""``compare``: how far a result is from the one that is wanted."""

from __future__ import annotations

import torch


def compare(got: torch.Tensor, wanted: torch.Tensor, label: str = "") -> None:
    """Print the largest difference, or which of the whole numbers differ.

    Args:
        got: a result, of any dtype, on any device.
        wanted: what it should be, of the same shape.
        label: a name to print before it.

    Raises:
        ValueError: the shapes differ.
    """
    if got.shape != wanted.shape:
        raise ValueError(
            f"got {tuple(got.shape)}, wanted {tuple(wanted.shape)}: only tensors of "
            "one shape can be compared"
        )
    pair = got.detach().cpu(), wanted.detach().cpu()
    head = f"{label}: " if label else ""
    exact = not any(one.is_floating_point() for one in pair)
    print(head + (_whole(*pair) if exact else _largest(*pair)))


def _largest(got: torch.Tensor, wanted: torch.Tensor) -> str:
    """Say by how much the worst element is off; NaN where one of the two is."""
    apart = (got.double() - wanted.double()).abs()
    apart[got == wanted] = 0.0  # two infinities, too
    worst = apart.max().item() if apart.numel() else 0.0
    size = wanted.double().abs().max().item() if wanted.numel() else 0.0
    return f"off by {worst:.1e} at most, of numbers up to {size:.3g}"


def _whole(got: torch.Tensor, wanted: torch.Tensor) -> str:
    """Say how many differ, and which is the first."""
    places = (got != wanted).nonzero()
    if not len(places):
        return f"all {got.numel():,} are equal"
    first = tuple(places[0].tolist())
    return (
        f"{len(places):,} of {got.numel():,} differ, the first at {first}: "
        f"{got[first].item()}, wanted {wanted[first].item()}"
    )
