"""From a ratio with its interval to a band."""

from __future__ import annotations

from collections.abc import Mapping

from autograder.exercise import Speed
from autograder.judge.speed.verdict import Band

_ORDER: tuple[Band, ...] = ("gold", "silver", "bronze")


def bands_for(speed: Speed, family: str, known: bool) -> Mapping[str, float]:
    """Choose the bands that hold on a GPU.

    Args:
        speed: the exercise's declaration.
        family: the GPU's generation, such as ``hopper``.
        known: whether the GPU stands in the data-sheet table.

    Returns:
        Ratios to the peer; to the copy bandwidth where ``against_copy`` says so.
    """
    if not known and speed.unknown is not None:
        return speed.unknown
    return speed.families.get(family, speed.bands)


def against_copy(speed: Speed, known: bool) -> bool:
    """Say whether the copy bandwidth takes the peer's place.

    A ratio to a library that was tuned for other chips says little of a kernel.
    Where operations are counted the library's own rate is the ceiling, on any chip.
    """
    if speed.flops is not None and speed.run_peer is not None:
        return False
    return speed.run_peer is None or (not known and speed.unknown is not None)


def band_of(ratio: float, bands: Mapping[str, float]) -> Band:
    """Return the best band that a ratio reaches."""
    for band in _ORDER:
        if band in bands and ratio >= bands[band]:
            return band
    return "none"


def straddles(low: float, high: float, bands: Mapping[str, float]) -> bool:
    """Say whether an interval leaves open which band it is."""
    return band_of(low, bands) != band_of(high, bands)
