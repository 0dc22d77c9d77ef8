"""The sector map: which bytes a warp asks for, and which the hardware moves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kernelwright.draw import palette
from kernelwright.draw.steps import (
    Frame,
    Steps,
    chosen_requests,
    nothing_to_draw,
    spread,
)

WORD, SECTOR, CACHE_LINE = 4, 32, 128
_CELL, _ROW, _LEFT, _TOP, _GAP = 21, 24, 110, 44, 6
_MOST_FRAMES, _MOST_ROWS = 16, 32


def sector_map(
    report: Any, line: int | None = None, *, op: str = "", limit: int = _MOST_FRAMES
) -> Steps:
    """Draw the requests of one source line to global memory, warp by warp.

    A row is a line of 128 bytes in four sectors of 32. A blue word was asked for and
    bears the number of the lane; an orange one was moved although nobody asked.

    Args:
        report: what ``kernel.trace[grid, block](…)`` returned.
        line: the line of the kernel's source; by default the one whose requests are
            farthest from their ideal.
        op: ``load`` or ``store``, where the line does both.
        limit: how many requests the slider goes through, spread over all.
    """
    found = chosen_requests(
        report, "global", line, op, lambda r: len(touched_sectors(r)) / ideal_sectors(r)
    )
    if not found:
        return nothing_to_draw("global memory", op)
    shown = spread(found, min(limit, _MOST_FRAMES))
    rows = max(min(_MOST_ROWS, len(_lines_of(request))) for request in shown)
    return Steps(
        [_frame(request) for request in shown],
        _head(),
        _x(31) + _CELL + 6,
        _TOP + rows * _ROW + 6,
        "Request",
        f"Line {found[0].line} of {report.kernel}: words that lanes asked for (blue, "
        "with the number of the lane) and words that come along in their sectors "
        "(orange).",
    )


def touched_sectors(request: Any) -> set[int]:
    """Return the sectors that a request touches, by number in the buffer."""
    return {byte // SECTOR for start, end in _spans(request) for byte in (start, end)}


def ideal_sectors(request: Any) -> int:
    """Return how few sectors could hold what the lanes ask for."""
    asked: int = len(request.lanes) * request.width
    return max(1, -(-asked // SECTOR))


def _spans(request: Any) -> Iterator[tuple[int, int]]:
    for lane in request.lanes:
        yield lane[3], lane[3] + request.width - 1


def _lines_of(request: Any) -> Sequence[int]:
    return sorted({s * SECTOR // CACHE_LINE for s in touched_sectors(request)})


def _x(word: int) -> float:
    return _LEFT + word * _CELL + word * WORD // SECTOR * _GAP


def _head() -> str:
    parts = [
        palette.text(_LEFT, 18, "128 bytes a row, in four sectors", class_="kw-head")
    ]
    for sector in range(CACHE_LINE // SECTOR):
        word = sector * SECTOR // WORD
        parts.append(
            palette.text(
                _x(word) + 4 * _CELL, 37, f"+{sector * SECTOR}", class_="kw-tick"
            )
        )
    return "".join(parts)


def _frame(request: Any) -> Frame:
    lanes: dict[int, int] = {}
    for lane, (start, end) in zip(request.lanes, _spans(request), strict=True):
        for word in range(start // WORD, end // WORD + 1):
            lanes.setdefault(word, lane[0])
    sectors, parts = touched_sectors(request), []
    for row, number in enumerate(_lines_of(request)[:_MOST_ROWS]):
        y = _TOP + row * _ROW
        label = f"byte {number * CACHE_LINE:,}"
        parts.append(palette.text(_LEFT - 8, y + 16, label, class_="kw-row"))
        for place in range(CACHE_LINE // WORD):
            word = number * CACHE_LINE // WORD + place
            parts += _word(word, _x(place), y, lanes, sectors)
    return Frame("".join(parts), _words(request, len(sectors)))


def _word(
    word: int, x: float, y: float, lanes: dict[int, int], sectors: set[int]
) -> Iterator[str]:
    size = (_CELL - 2, _ROW - 4)
    if word in lanes:
        yield palette.box(
            x, y, *size, class_="kw-used", style=f"--c: {palette.series(0)}"
        )
        yield palette.text(x + size[0] / 2, y + 15, str(lanes[word]))
    else:
        moved = word * WORD // SECTOR in sectors
        yield palette.box(x, y, *size, class_="kw-waste" if moved else "kw-none")


def _words(request: Any, sectors: int) -> str:
    asked = len(request.lanes) * request.width
    used = min(1, asked / (SECTOR * sectors))
    return (
        f"block {tuple(request.block)}, warp {request.warp}, {request.op} "
        f"{request.occurrence + 1} of this line: {len(request.lanes)} lanes ask for "
        f"{asked} bytes; {_counted(sectors)} of 32 bytes move "
        f"({ideal_sectors(request)} at best), {100 * used:.3g}% "
        "of it used"
    )


def _counted(sectors: int) -> str:
    return f"{sectors} sector{'' if sectors == 1 else 's'}"
