"""The im2col of a tile: held against torch's own im2col."""

from __future__ import annotations

import re

import pytest
import torch

import kernelwright as kw
from kernelwright.draw import im2col_tile
from kernelwright.draw.im2col import Convolution
from kernelwright.draw.steps import Frame


def matrix_of(of: Convolution) -> list[list[int]]:
    """Return for each result and place the pixel that is read, from 1; 0: a zero."""
    found = []
    for pixel in range(of.out_height * of.out_width):
        reads = [of.read(pixel, place) for place in of.places]
        found.append(
            [r * of.width + c + 1 if of.holds((r, c)) else 0 for r, c in reads]
        )
    return found


@pytest.mark.parametrize("kernel", [(1, 1), (3, 3), (5, 2)])
@pytest.mark.parametrize(("stride", "padding"), [(1, 0), (1, 1), (2, 1), (3, 2)])
def test_the_cells_are_those_of_torch(
    kernel: tuple[int, int], stride: int, padding: int
) -> None:
    of = Convolution(6, 9, 16, *kernel, stride, padding)
    x = torch.arange(1.0, 55.0).view(1, 1, 6, 9)
    wanted = torch.nn.functional.unfold(x, kernel, padding=padding, stride=stride)
    assert matrix_of(of) == wanted[0].T.int().tolist()


def cells(frame: Frame, kind: str) -> int:
    return len(re.findall(f'class="{kind}"', frame.svg))


def test_a_frame_a_place_with_its_zeros() -> None:
    figure = im2col_tile(6, 7, 16, tile=10)
    assert len(figure.frames) == 1 + 9
    words = [frame.words for frame in figure.frames]
    assert words[0].startswith("10 results x 9 places = 90 cells of 16 channels (10 x ")
    assert (
        "28 are zeros of the padding, the others only 18 different pixels" in words[0]
    )
    assert words[1].startswith("place (0, 0), k = 0 to 15: result (i, j) reads pixel ")
    assert words[1].endswith(
        "(i - 1, j - 1) of x; results 0, 1, 2, 3, 4, 5, 6, 7 a zero"
    )
    assert words[5].endswith("k = 64 to 79: result (i, j) reads pixel (i, j) of x")
    # A zero is drawn in the image and in the column of its place.
    assert [cells(frame, "kw-waste") for frame in figure.frames[1:6]] == [
        16, 14, 14, 4, 0,
    ]  # fmt: skip
    assert cells(figure.frames[5], "kw-used") == 2 * 10


def test_a_stride_and_the_end_of_the_results() -> None:
    figure = im2col_tile(7, 9, 8, stride=2, tile=12, first=16)
    words = figure.frames[2].words
    assert (
        words
        == "place (0, 1), k = 8 to 15: result (i, j) reads pixel (2i - 1, 2j) of x"
    )
    assert figure.frames[0].words.startswith("4 results x 9 places")


def test_the_halo_is_what_lies_beside_the_tile() -> None:
    # The three middle pixels of a row of five: a rim of 3 x 5 less the three.
    figure = im2col_tile(5, 5, 1, tile=3, first=11)
    assert "15 different pixels, 12 of them halo" in figure.frames[0].words


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"stride": 0}, "1 or more"),
        ({"kernel": 8, "padding": 0}, "wanted 8, as the kernel has, to 20"),
        ({"padding": 9}, "wanted 3, as the kernel has, to 20"),
        ({"tile": 17}, "a picture holds 16 results and 25 places"),
        ({"first": 42}, "there are 6 x 7 results"),
    ],
)
def test_what_makes_no_picture_is_refused(how: dict[str, int], said: str) -> None:
    with pytest.raises(kw.ArgumentError, match=said):
        im2col_tile(6, 7, 16, **how)  # type: ignore[arg-type]
