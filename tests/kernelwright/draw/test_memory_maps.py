"""The sector map and the bank map: what they count is what a GPU counts."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import pytest

from kernelwright.draw.banks import bank_map, tile_map, wavefronts
from kernelwright.draw.sectors import ideal_sectors, sector_map, touched_sectors


@dataclass
class Request:
    """A request as the trace reports it; lanes are lane, thread, buffer, byte."""

    offsets: list[int]
    width: int = 4
    space: str = "global"
    op: str = "load"
    line: int = 3
    block: tuple[int, int, int] = (0, 0, 0)
    warp: int = 0
    occurrence: int = 0

    @property
    def lanes(self) -> list[tuple[int, int, str, int]]:
        return [(lane, lane, "x", byte) for lane, byte in enumerate(self.offsets)]


@dataclass
class Report:
    requests: list[Request]
    kernel: str = "k"
    asked: list[object] = field(default_factory=list)

    def accesses(
        self, line: int | None = None, space: str | None = None
    ) -> list[Request]:
        return [
            r
            for r in self.requests
            if line in (None, r.line) and space in (None, r.space)
        ]


def strided(stride: int, width: int = 4, start: int = 0, **more: object) -> Request:
    return Request(
        [start + stride * i for i in range(32)],
        width,
        **more,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("request_", "sectors", "ideal"),
    [
        (strided(4), 4, 4),
        (strided(8), 8, 4),
        (strided(32), 32, 4),
        (strided(128), 32, 4),
        (strided(4, start=4), 5, 4),
        (strided(16, 16), 16, 16),
        (strided(2, 2), 2, 2),
        (Request([0] * 32), 1, 4),
        (Request([28], width=4), 1, 1),
    ],
)
def test_sectors(request_: Request, sectors: int, ideal: int) -> None:
    assert len(touched_sectors(request_)) == sectors
    assert ideal_sectors(request_) == ideal


@pytest.mark.parametrize(
    ("request_", "count"),
    [
        (strided(4), 1),
        (strided(8), 2),
        (strided(128), 32),
        (strided(132), 1),
        (Request([64] * 32), 1),  # one word for all: a broadcast
        (strided(8, 8), 2),
        (strided(16, 16), 4),
        (strided(128, 16), 32),
        (strided(2, 2), 1),  # two lanes share a word
    ],
)
def test_wavefronts(request_: Request, count: int) -> None:
    served = wavefronts(request_)
    assert len(served) == count
    assert all(0 <= bank < 32 for slot in served for bank in slot)


def test_a_sector_map_says_and_shows_what_moves() -> None:
    drawn = sector_map(Report([strided(32), strided(4)]), line=3)
    assert "32 sectors of 32 bytes move (4 at best), 12.5% of it used" in str(drawn)
    picture = drawn.svg()
    assert picture.count("data-frame=") == 2
    # The first frame: 32 words used, seven times as many come along.
    first = picture.split('data-frame="1"')[0]
    assert first.count('class="kw-used"') == 32
    assert first.count('class="kw-waste"') == 7 * 32
    assert 'role="img"' in picture and "<title" in picture


def test_a_bank_map_marks_who_waits() -> None:
    conflict = strided(128, space="shared", op="store")
    free = strided(132, space="shared", op="store")
    drawn = bank_map(Report([conflict, free]), line=3, op="store")
    assert "32 wavefronts (1 at best)" in drawn.frames[0].words
    assert drawn.frames[0].svg.count("kw-wrong") == 31
    assert "1 wavefront (1 at best)" in drawn.frames[1].words
    assert "kw-wrong" not in drawn.frames[1].svg


def test_quarters_of_a_warp_do_not_wait_for_each_other() -> None:
    drawn = bank_map(Report([strided(16, 16, space="shared")]), line=3)
    assert "4 wavefronts (4 at best)" in drawn.frames[0].words
    assert "kw-wrong" not in drawn.frames[0].svg


def test_without_requests_the_figure_says_so() -> None:
    # A chapter's cells run on a stub, whose body is empty.
    assert "no load to global memory" in str(sector_map(Report([]), op="load"))
    assert "no access to shared memory" in bank_map(Report([strided(4)]), 3).svg()


def test_the_costliest_line_is_drawn_by_default() -> None:
    good, bad = strided(4), strided(128)
    bad.line = 8
    assert "Line 8" in sector_map(Report([good, bad])).caption
    free, conflict = (strided(s, space="shared") for s in (132, 128))
    conflict.line = 9
    assert "Line 9" in bank_map(Report([free, conflict])).caption


def test_the_tile_map_shows_what_padding_and_a_swizzle_do() -> None:
    plain, padded = tile_map(32), tile_map(33)
    swizzled = tile_map(32, lambda r, c: c ^ r)
    assert "32 words in 1 bank, 32 wavefronts" in plain.frames[5].words
    assert plain.frames[5].svg.count(">5</text>") == 32  # all in bank 5
    for drawn in (padded, swizzled):
        assert all("32 banks, 1 wavefront" in frame.words for frame in drawn.frames)


def test_a_swizzle_by_groups_of_four_is_free_of_conflicts() -> None:
    def reads(lane: int, step: int) -> tuple[int, int]:
        return 4 * (lane % 8) + step % 4, 4 * (step // 4) + lane // 8

    plain = tile_map(32, reads=reads)
    padded = tile_map(36, reads=reads)
    swizzled = tile_map(32, lambda r, c: 4 * ((c // 4) ^ (r // 4)) + c % 4, reads=reads)
    assert all("4 banks, 8 wavefronts" in frame.words for frame in plain.frames)
    assert all("8 banks, 4 wavefronts" in frame.words for frame in padded.frames)
    assert all("32 banks, 1 wavefront" in frame.words for frame in swizzled.frames)


def test_figures_stand_alone_and_share_no_names() -> None:
    shown = tile_map(33)
    first, second = shown._repr_html_(), shown._repr_html_()
    ids = [set(re.findall(r' id="([^"]+)"', text)) for text in (first, second)]
    assert ids[0] and not ids[0] & ids[1]
    assert not re.search(r'(?:src|href)="', first) and "http" not in first.replace(
        "http://www.w3.org/2000/svg", ""
    )
    assert first.count("kw-gone") >= 31  # one frame is seen without the script
