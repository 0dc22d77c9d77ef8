"""What rounding a matrix to a few bits costs: errors, and where they sit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from kernelwright.draw import palette
from kernelwright.draw.live import Explorer, Picture
from kernelwright.draw.steps import Frame, Steps
from kernelwright.errors import ArgumentError

Rounded = Callable[[torch.Tensor, int], torch.Tensor]

_BINS, _REACH = 61, 0.6  # of the histogram: errors up to 0.6 of a typical weight
_PLACES = 64  # parts of a row
_WIDTH, _LEFT, _RIGHT = 492.0, 46.0, 466.0
_TOP, _HIGH = 34.0, 150.0  # of the histogram
_BELOW, _LOW = 266.0, 90.0  # of the errors along a row


def explore_groups(
    layers: Mapping[str, torch.Tensor],
    rounded: Rounded,
    sizes: Sequence[int] = (16, 32, 64, 128, 256, 512, 1024),
    *,
    bits: int = 4,
    extra_bits: int = 16,
) -> Explorer:
    """Let the reader choose how many weights share a scale, and see every error.

    Args:
        layers: matrices (rows, columns) by name.
        rounded: of a matrix and a group size makes the matrix that its codes stand
            for.
        sizes: of groups, to choose from.
        bits: of a code.
        extra_bits: of what a group keeps beside its codes: its scale, its zero.

    Raises:
        ArgumentError: no layer, one that is no matrix, or one that is all zeros.
    """
    if not layers:
        raise ArgumentError("explore_groups: there is no layer; wanted one or more.")
    for name, weight in layers.items():
        if weight.dim() != 2 or not bool(weight.any()):
            raise ArgumentError(
                f"explore_groups: {name} has shape {tuple(weight.shape)}; wanted a "
                "matrix (rows, columns), not all of it zeros."
            )

    def draw(layer: str, size: int) -> Picture:
        weight = layers[layer].detach().double().cpu()
        typical = _typical(weight)
        made = rounded(layers[layer].detach(), size).double().cpu()
        if made.shape != weight.shape or not bool(torch.isfinite(made).all()):
            raise ArgumentError(
                f"explore_groups: of {layer}, {tuple(weight.shape)}, rounded made "
                f"{tuple(made.shape)}; wanted finite numbers of the same shape."
            )
        error = (made - weight) / typical
        drawn = _histogram(error) + _along(error)
        each = f"{bits + extra_bits / size:.4g} bits a weight"
        picture = Steps([Frame(drawn, "")], "", _WIDTH, _BELOW + _LOW + 44, "", "",
                        wide=False, narrow=True)  # fmt: skip
        return Picture(picture, f"{_said(error)}; {each}")

    return Explorer(
        {"layer": tuple(layers), "group size": tuple(sizes)},
        draw,
        "Above, how often an error occurs; below, how large errors are along a row "
        "(root mean square). Both are in units of a typical weight of the matrix, the "
        "median magnitude. A large weight spoils the group that it is in, and smaller "
        "groups confine it.",
    )


def _typical(weight: torch.Tensor) -> torch.Tensor:
    """Return the median magnitude: outliers do not move it, as they would a mean."""
    size = weight.abs()
    return size[size > 0].median()


def _said(error: torch.Tensor) -> str:
    typical = float(error.square().mean().sqrt())
    outside = float((error.abs() > _REACH).double().mean())
    beyond = f", {outside:.2%} beyond the picture" if outside else ""
    return f"error {typical:.1%} of a typical weight{beyond}"


def _histogram(error: torch.Tensor) -> str:
    """Draw the shares of errors; the highest bar is as high as there is room."""
    counts = torch.histc(error, _BINS, -_REACH, _REACH)
    shares = counts / max(1, error.numel())
    most = max(float(shares.max()), 1e-12)
    wide = (_RIGHT - _LEFT) / _BINS
    bars = []
    for at, share in enumerate(shares.tolist()):
        high = share / most * _HIGH
        if high > 0.2:
            bars.append(_bar(_LEFT + at * wide, _TOP + _HIGH, wide, high))
    floor = _TOP + _HIGH
    parts = [
        palette.text(_LEFT, 18, "how often an error occurs", class_="kw-head"),
        _filled("".join(bars), palette.series(0)),
        _axis(floor),
        _tick(_LEFT - 6, _TOP + 12, f"{most:.0%}", "end"),
    ]
    for value in (-0.6, -0.3, 0.0, 0.3, 0.6):
        x = _LEFT + (value / _REACH + 1) / 2 * (_RIGHT - _LEFT)
        parts.append(
            _tick(x, floor + 18, f"{value:+.0%}".replace("-", "−") if value else "0")
        )
    return "".join(parts)


def _along(error: torch.Tensor) -> str:
    """Draw the errors' root mean square in each part of the columns."""
    columns = error.shape[1]
    parts_of = torch.tensor_split(error, min(_PLACES, columns), dim=1)
    sizes = [float(part.square().mean().sqrt()) for part in parts_of]
    most = max(0.2, *sizes) if len(sizes) > 1 else max(0.2, sizes[0])
    wide = (_RIGHT - _LEFT) / len(sizes)
    floor = _BELOW + _LOW
    bars = "".join(
        _bar(_LEFT + at * wide, floor, wide, size / most * _LOW)
        for at, size in enumerate(sizes)
    )
    return "".join(
        [
            palette.text(_LEFT, _BELOW - 14, "where it sits: along the columns",
                         class_="kw-head"),
            _filled(bars, palette.series(1)),
            _axis(floor),
            _tick(_LEFT - 6, _BELOW + 10, f"{most:.0%}", "end"),
            _tick(_LEFT, floor + 18, "column 0", "start"),
            _tick(_RIGHT, floor + 18, f"{columns - 1}", "end"),
        ]
    )  # fmt: skip


def _bar(x: float, floor: float, wide: float, high: float) -> str:
    return f"M{x:.1f} {floor:.1f}v-{high:.1f}h{wide - 1:.1f}v{high:.1f}z"


def _filled(path: str, colour: str) -> str:
    return f'<path class="kw-used" style="--c: {colour}" d="{path}"/>'


def _axis(y: float) -> str:
    return f'<path fill="none" stroke="{palette.LINE}" d="M{_LEFT} {y}H{_RIGHT}"/>'


def _tick(x: float, y: float, label: str, anchor: str = "middle") -> str:
    style = f"text-anchor: {anchor}; font-size: 14px"
    return palette.text(x, y, label, class_="kw-tick", style=style)
