"""The im2col of a tile: which pixels of x a tile of results reads, place by place."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from kernelwright.draw import palette
from kernelwright.draw.steps import Frame, Steps
from kernelwright.errors import ArgumentError

Pixel = tuple[int, int]
_CELL, _SIDE, _LEFT, _TOP = 30, 28, 34, 60  # of the image
_WIDE, _GAP, _NAMES = 44, 34, 96  # of the matrix
# Of the results; the palette's second colour is that of zeros.
_COLOURS = (0, 2, 3, 4)
_MOST_SIDE, _MOST_TILE, _MOST_PLACES = 20, 16, 25
_LEAST_WIDTH = 720


@dataclass(frozen=True)
class Convolution:
    """What is convolved, and how.

    Args:
        height, width: of x, in pixels.
        channels: of x.
        r, s: rows and columns of the filter.
        stride: pixels of x from one result to the next.
        padding: zeros on each side.
    """

    height: int
    width: int
    channels: int
    r: int
    s: int
    stride: int
    padding: int

    @property
    def out_height(self) -> int:
        """Rows of the result."""
        return (self.height + 2 * self.padding - self.r) // self.stride + 1

    @property
    def out_width(self) -> int:
        """Columns of the result."""
        return (self.width + 2 * self.padding - self.s) // self.stride + 1

    @property
    def places(self) -> list[Pixel]:
        """The filter's places (r, s), in the order of the matrix's columns."""
        return [(r, s) for r in range(self.r) for s in range(self.s)]

    def read(self, pixel: int, place: Pixel) -> Pixel:
        """Return the row and column of x that a result reads; outside: a zero."""
        down, across = divmod(pixel, self.out_width)
        return (
            down * self.stride - self.padding + place[0],
            across * self.stride - self.padding + place[1],
        )

    def holds(self, pixel: Pixel) -> bool:
        """Say whether a row and column are x's."""
        return 0 <= pixel[0] < self.height and 0 <= pixel[1] < self.width

    def own(self, pixel: int) -> set[Pixel]:
        """Return the pixels below a result itself: what else it reads is halo."""
        row, column = self.read(pixel, (self.r // 2, self.s // 2))
        step = range(self.stride)
        return {(row + down, column + across) for down in step for across in step}


def im2col_tile(
    height: int,
    width: int,
    channels: int,
    *,
    kernel: int | tuple[int, int] = 3,
    stride: int = 1,
    padding: int = 1,
    tile: int = 10,
    first: int = 0,
) -> Steps:
    """Draw what a tile of a convolution's results reads, and the matrix not built.

    The slider goes through the places (r, s) of the filter. On the left the pixels of
    x that the tile's results read there, each with the number of its result; on the
    right the tile's rows of the im2col matrix, of which this place is ``channels``
    columns. Dashed cells are the padding's zeros.

    Args:
        height: of x, in pixels.
        width: of x.
        channels: of x: how many columns of the matrix a place has.
        kernel: rows and columns of the filter.
        stride: pixels of x from one result to the next.
        padding: zeros on each side.
        tile: how many results, in the order of memory.
        first: the first of them.

    Raises:
        ArgumentError: sizes that make no convolution, or no picture.
    """
    r, s = (kernel, kernel) if isinstance(kernel, int) else kernel
    of = Convolution(height, width, channels, r, s, stride, padding)
    _check(of, tile, first)
    pixels = list(range(first, min(first + tile, of.out_height * of.out_width)))
    right = _LEFT + (width + 2 * padding) * _CELL + _GAP + _NAMES
    frames = [Frame(_all(of, pixels, right), _summed(of, pixels))]
    frames += [
        Frame(_place(of, pixels, number, right), _said(of, pixels, number))
        for number in range(len(of.places))
    ]
    return Steps(
        frames,
        _base(of, pixels, right),
        max(right + len(of.places) * _WIDE + 6, _LEAST_WIDTH),
        _TOP + max((height + 2 * padding) * _CELL, len(pixels) * _CELL) + 8,
        "Place",
        "Left: x with its padding, and the pixels that a tile of results reads. Right: "
        "the same as rows of the im2col matrix, which repeats them and is never built: "
        "a copy into shared memory finds each of its cells in x by arithmetic.",
    )


def _check(of: Convolution, tile: int, first: int) -> None:
    if min(of.channels, of.r, of.s, of.stride, tile) < 1 or min(of.padding, first) < 0:
        raise ArgumentError(
            "channels, kernel, stride and tile are 1 or more, padding and first 0 or "
            f"more; got {of.channels}, ({of.r}, {of.s}), {of.stride}, {tile}, "
            f"{of.padding} and {first}."
        )
    for side, edge in ((of.height, of.r), (of.width, of.s)):
        if not edge <= side + 2 * of.padding <= _MOST_SIDE:
            raise ArgumentError(
                f"a side of {side} pixels and {of.padding} zeros at each end is "
                f"{side + 2 * of.padding}; wanted {edge}, as the kernel has, to "
                f"{_MOST_SIDE}, as a picture holds."
            )
    if tile > _MOST_TILE or of.r * of.s > _MOST_PLACES:
        raise ArgumentError(
            f"a tile of {tile} and a kernel of {of.r} x {of.s}: a picture holds "
            f"{_MOST_TILE} results and {_MOST_PLACES} places."
        )
    if first >= of.out_height * of.out_width:
        raise ArgumentError(
            f"first is {first}, and there are {of.out_height} x {of.out_width} results."
        )


def _summed(of: Convolution, pixels: list[int]) -> str:
    reads = [of.read(pixel, place) for pixel in pixels for place in of.places]
    inside = {pixel for pixel in reads if of.holds(pixel)}
    zeros = sum(not of.holds(pixel) for pixel in reads)
    halo = inside - set().union(*(of.own(pixel) for pixel in pixels))
    places, wide = len(of.places), len(of.places) * of.channels
    return (
        f"{len(pixels)} results x {places} places = {len(reads)} cells of {of.channels}"
        f" channels ({len(pixels)} x {wide} numbers): {zeros} are zeros of the padding,"
        f" the others only {len(inside)} different pixels, {len(halo)} of them halo "
        "(violet), each read as often as it says"
    )


def _said(of: Convolution, pixels: list[int], number: int) -> str:
    r, s = of.places[number]
    low, high = number * of.channels, (number + 1) * of.channels - 1
    zeros = [pixel for pixel in pixels if not of.holds(of.read(pixel, (r, s)))]
    row, column = (
        _spelled("i", of.stride, r - of.padding),
        _spelled("j", of.stride, s - of.padding),
    )
    said = f"place ({r}, {s}), k = {low} to {high}: result (i, j) reads pixel "
    said += f"({row}, {column}) of x"
    if zeros:
        names = ", ".join(map(str, zeros))
        said += f"; result{'s' * (len(zeros) > 1)} {names} a zero"
    return said


def _spelled(name: str, factor: int, more: int) -> str:
    """Write factor * name + more as one would by hand."""
    product = name if factor == 1 else f"{factor}{name}"
    return f"{product} {'+' if more > 0 else '-'} {abs(more)}" if more else product


def _image_at(of: Convolution, pixel: Pixel) -> tuple[int, int]:
    row, column = pixel
    return _LEFT + (column + of.padding) * _CELL, _TOP + (row + of.padding) * _CELL


def _base(of: Convolution, pixels: list[int], right: int) -> str:
    """Draw x with its zeros, and the matrix with its rows' and columns' names."""
    size = f"x, {of.height} x {of.width} pixels"
    pieces = [palette.text(_LEFT, 20, size, class_="kw-head")]
    for row in range(-of.padding, of.height + of.padding):
        _, y = _image_at(of, (row, 0))
        if 0 <= row < of.height:
            pieces.append(palette.text(_LEFT - 6, y + 19, str(row), class_="kw-row"))
        for column in range(-of.padding, of.width + of.padding):
            kind = "kw-none" if of.holds((row, column)) else "kw-masked kw-past"
            x, _ = _image_at(of, (0, column))
            pieces.append(palette.box(x, y, _SIDE, _SIDE, class_=kind))
    for column in range(of.width):
        x, _ = _image_at(of, (0, column))
        pieces.append(
            palette.text(x + _SIDE / 2, _TOP - 8, str(column), class_="kw-tick")
        )
    left = right - _NAMES
    pieces.append(palette.text(left, 20, "rows of the matrix", class_="kw-head"))
    for number, (r, s) in enumerate(of.places):
        at = right + number * _WIDE + _WIDE / 2 - 1
        pieces.append(palette.text(at, _TOP - 8, f"({r}, {s})", class_="kw-tick"))
    for row, pixel in enumerate(pixels):
        down, across = divmod(pixel, of.out_width)
        name, y = f"{pixel}: ({down}, {across})", _TOP + row * _CELL + 19
        pieces.append(palette.text(right - 8, y, name, class_="kw-row"))
    return "".join(pieces)


def _all(of: Convolution, pixels: list[int], right: int) -> str:
    """Shade what the whole tile reads, with how often, and all of its matrix."""
    often = Counter(of.read(pixel, place) for pixel in pixels for place in of.places)
    own = set().union(*(of.own(pixel) for pixel in pixels))
    pieces = [
        _cell(*_image_at(of, at), _SIDE, str(count), None if of.holds(at) else "zero",
              0 if at in own else 3)
        for at, count in often.items()
    ]  # fmt: skip
    for number in range(len(of.places)):
        pieces.append(_column(of, pixels, number, right, faint=True))
    return "".join(pieces)


def _place(of: Convolution, pixels: list[int], number: int, right: int) -> str:
    """Fill what is read at one place of the filter, a colour a result."""
    pieces = []
    for row, pixel in enumerate(pixels):
        at = of.read(pixel, of.places[number])
        kind = None if of.holds(at) else "zero"
        pieces.append(_cell(*_image_at(of, at), _SIDE, str(pixel), kind, _colour(row)))
    for other in range(len(of.places)):
        faint = other != number
        pieces.append(_column(of, pixels, other, right, faint=faint))
    return "".join(pieces)


def _column(
    of: Convolution, pixels: list[int], number: int, right: int, *, faint: bool
) -> str:
    """Draw one place's cells of the matrix: the pixel of x that each is, or 0."""
    pieces = []
    for row, pixel in enumerate(pixels):
        r, c = of.read(pixel, of.places[number])
        there = of.holds((r, c))
        kind = (
            (None if there else "zero") if not faint else ("none" if there else "off")
        )
        x, y = right + number * _WIDE, _TOP + row * _CELL
        label = f"{r}, {c}" if there else "0"
        pieces.append(_cell(x, y, _WIDE - 3, label, kind, _colour(row)))
    return "".join(pieces)


def _colour(row: int) -> int:
    return _COLOURS[row % len(_COLOURS)]


def _cell(
    x: float, y: float, width: float, label: str, kind: str | None, colour: int
) -> str:
    classes = {
        None: "kw-used",
        "zero": "kw-waste",
        "none": "kw-none",
        "off": "kw-masked",
    }
    style = f"--c: {palette.series(colour)}"
    return palette.box(
        x, y, width, _SIDE, class_=classes[kind], style=style
    ) + palette.text(x + width / 2, y + 19, label)
