"""The tile's layout: the bank of each element, by hand and as the trace counts it."""

from __future__ import annotations

import re

import pytest
import torch

import kernelwright as kw
from kernelwright.draw import tile_layout

READ_COLUMN = """
__global__ void read_column(float* out) {
    __shared__ float tile[32][32 + %d];
    tile[0][threadIdx.x] = 1;
    __syncthreads();
    for (int r = 0; r < 32; ++r) tile[r][threadIdx.x] = r;
    __syncthreads();
    out[threadIdx.x] = tile[threadIdx.x][%s];
}
"""


def banks(svg: str) -> list[int]:
    """Read the numbers out of the picture: the drawn cells, row by row."""
    cells = re.findall(r'<text x="[\d.]+" y="[\d.]+">(\d+)</text>', svg)
    return [int(number) for number in cells]


def test_the_numbers_in_the_cells_are_banks() -> None:
    plain, padded = tile_layout(32, 32), tile_layout(32, 32, padding=1)
    assert banks(plain.base) == list(range(32)) * 32
    expected = [(row + column) % 32 for row in range(32) for column in range(32)]
    assert banks(padded.base) == expected


@pytest.mark.parametrize(
    ("padding", "column", "swizzle"),
    [(0, "7", None), (1, "7", None), (2, "7", None), (0, "7 ^ threadIdx.x", "xor")],
)
def test_the_wavefronts_are_what_the_trace_counts(
    padding: int, column: str, swizzle: str | None
) -> None:
    kernel = kw.cuda.compile(READ_COLUMN % (padding, column), backend="emulator")
    report = kernel["read_column"].trace[1, 32](torch.empty(32))
    drawn = tile_layout(32, 32, padding=padding, swizzle=swizzle)  # type: ignore[arg-type]
    counted = round(report.shared_load.wavefronts_per_request)
    said = re.search(r"(\d+) wavefronts?", drawn.frames[1 + 7].words)
    assert said is not None and int(said[1]) == counted


def test_captions_state_the_conclusion() -> None:
    assert tile_layout(32, 32).caption == (
        "tile[32][32] of 4 bytes each: a warp that reads a column needs 32 wavefronts "
        "where 1 could do: elements of a column share banks."
    )
    assert tile_layout(32, 32, swizzle="xor").caption == (
        "tile[32][32] of 4 bytes each, swizzled by an exclusive or: a warp reads "
        "every column in 1 wavefront, the best there is."
    )


def test_wide_elements_are_read_by_quarters_of_a_warp() -> None:
    plain = tile_layout(32, 8, element_bytes=16)
    swizzled = tile_layout(32, 8, swizzle="xor", element_bytes=16)
    assert "32 wavefronts (4 at best)" in plain.frames[1].words
    assert "32 elements in 32 banks, 4 wavefronts" in swizzled.frames[1].words
    assert "kw-wrong" in plain.frames[1].svg
    assert "kw-wrong" not in swizzled.frames[1].svg


def test_who_waits_is_marked() -> None:
    # Padding of two: rows 16 apart share a bank, so half of the column waits.
    frame = tile_layout(32, 32, padding=2).frames[1]
    (path,) = re.findall(r'class="kw-wrong" d="([^"]*h-20z)"', frame.svg)
    assert path.count("M") == 16
    assert "2 wavefronts (1 at best)" in frame.words


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rows": 65, "columns": 4}, "65 x 4; a picture holds"),
        ({"rows": 4, "columns": 6, "swizzle": "xor"}, "power of two"),
        ({"rows": 4, "columns": 4, "padding": -1}, "padding is -1"),
        ({"rows": 4, "columns": 4, "element_bytes": 3}, "element_bytes is 3"),
        ({"rows": 4, "columns": 4, "swizzle": lambda r, c: 0}, "4 elements at 1 place"),
    ],
)
def test_what_is_no_tile_is_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(kw.ArgumentError, match=message):
        tile_layout(**given)  # type: ignore[arg-type]
