"""The bank map: how a warp's request to shared memory meets its 32 banks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kernelwright.draw import palette
from kernelwright.draw.steps import (
    Frame,
    Steps,
    chosen_requests,
    nothing_to_draw,
    spread,
)

BANKS, WORD = 32, 4
_CELL, _ROW, _LEFT, _TOP = 22, 24, 110, 44
_MOST_FRAMES, _MOST_ROWS = 16, 32
_TILE, _TILE_ROWS = 20, 32
_LANES_TOGETHER = {8: 16, 16: 8}  # wider accesses go by half and quarter warps

Slot = dict[int, list[int]]  # bank -> the lanes that it serves in one wavefront


def bank_map(
    report: Any, line: int | None = None, *, op: str = "", limit: int = _MOST_FRAMES
) -> Steps:
    """Draw the requests of one source line to shared memory, wavefront by wavefront.

    A column is a bank, a row a wavefront; a cell bears the lane that the bank serves
    then. A request without conflicts is one row (of four, for 16 bytes a lane).

    Args:
        report: what ``kernel.trace[grid, block](…)`` returned.
        line: the line of the kernel's source; by default the one whose requests take
            the most wavefronts.
        op: ``load`` or ``store``, where the line does both.
        limit: how many requests the slider goes through, spread over all.
    """
    found = chosen_requests(
        report, "shared", line, op, lambda r: len(wavefronts(r)) / ideal_wavefronts(r)
    )
    if not found:
        return nothing_to_draw("shared memory", op)
    shown = spread(found, min(limit, _MOST_FRAMES))
    served = [wavefronts(request) for request in shown]
    rows = max(min(_MOST_ROWS, len(each)) for each in served)
    frames = [_frame(r, w) for r, w in zip(shown, served, strict=True)]
    return Steps(
        frames,
        _head("bank 0 to 31: the lane that it serves"),
        _LEFT + BANKS * _CELL + 6,
        _TOP + rows * _ROW + 6,
        "Request",
        f"Line {found[0].line} of {report.kernel}: a row is a wavefront. Red lanes had "
        "to wait, because their bank was busy with another word.",
    )


def wavefronts(request: Any) -> list[Slot]:
    """Serve a request: each bank gives one word a wavefront, to all who want it."""
    together = _LANES_TOGETHER.get(request.width, 32)
    found: list[Slot] = []
    for first in range(0, 32, together):
        wanted: dict[int, dict[int, list[int]]] = {}
        for lane in request.lanes:
            if first <= lane[0] < first + together:
                for word in range(
                    lane[3] // WORD, (lane[3] + request.width - 1) // WORD + 1
                ):
                    words = wanted.setdefault(word % BANKS, {})
                    words.setdefault(word, []).append(lane[0])
        deepest = max((len(words) for words in wanted.values()), default=0)
        found += [
            {
                bank: list(words.values())[turn]
                for bank, words in wanted.items()
                if turn < len(words)
            }
            for turn in range(deepest)
        ]
    return found


def tile_map(
    columns: int,
    place: Callable[[int, int], int] = lambda row, column: column,
    *,
    reads: Callable[[int, int], tuple[int, int]] = lambda lane, step: (lane, step),
    caption: str = "",
) -> Steps:
    """Draw a tile of 32 rows in shared memory, and the banks that a warp touches.

    Args:
        columns: floats in a row of the tile, the padding included.
        place: where in its row the element (row, column) is kept; a swizzle.
        reads: row and column of the element that a lane wants in one of 32 steps;
            by default lane r wants row r of one column.
        caption: said below the picture.
    """
    frames = [_tile_frame(columns, place, reads, step) for step in range(_TILE_ROWS)]
    labels = [
        palette.text(_LEFT - 8, _TOP + row * _TILE + 15, f"row {row}", class_="kw-row")
        for row in range(0, _TILE_ROWS, 4)
    ]
    head = palette.text(
        _LEFT, 26, "the tile; numbers are banks, red ones are busy", class_="kw-head"
    )
    every = [(row, at) for row in range(_TILE_ROWS) for at in range(columns)]
    return Steps(
        frames,
        head + "".join(labels) + _squares(every, "kw-none"),
        _LEFT + max(columns, 33) * _TILE + 6,
        _TOP + _TILE_ROWS * _TILE + 6,
        "Step",
        caption
        or f"A tile of 32 rows with {columns} floats each; a warp reads a column.",
    )


def fours_map(*, swizzled: bool) -> Steps:
    """Draw how 8 x 8 threads read columns of a 32 x 32 tile of groups of four floats.

    In each step a lane reads one of four floats down a column, as chapter 2's last rung
    does before it stores them together.

    Args:
        swizzled: whether row r keeps its group g at place g ^ (r / 4).
    """

    def place(row: int, column: int) -> int:
        return 4 * (column // 4 ^ row // 4) + column % 4 if swizzled else column

    def reads(lane: int, step: int) -> tuple[int, int]:
        return 4 * (lane % 8) + step % 4, 4 * (step // 4) + lane // 8

    caption = "Swizzled." if swizzled else "Rows as they are."
    return tile_map(32, place, reads=reads, caption=caption)


def _tile_frame(
    columns: int,
    place: Callable[[int, int], int],
    reads: Callable[[int, int], tuple[int, int]],
    step: int,
) -> Frame:
    seen: dict[int, int] = {}
    free: list[tuple[int, int]] = []
    busy: list[tuple[int, int]] = []
    numbers: list[str] = []
    for lane in range(32):
        row, column = reads(lane, step)
        at = place(row, column)
        bank = (row * columns + at) % BANKS
        (busy if bank in seen else free).append((row, at))
        seen[bank] = seen.get(bank, 0) + 1
        x, y = _LEFT + at * _TILE + _TILE / 2 - 1, _TOP + row * _TILE + 14
        numbers.append(palette.text(x, y, str(bank)))
    waves, banks = max(seen.values()), len(seen)
    words = (
        f"step {step}: 32 words in {banks} bank{'' if banks == 1 else 's'}, {waves} "
        f"wavefront{'' if waves == 1 else 's'}"
    )
    blue = f' style="--c: {palette.series(0)}"'
    drawn = _squares(free, "kw-used", blue) + _squares(busy, "kw-wrong")
    return Frame(drawn + "".join(numbers), words)


def _squares(cells: Sequence[tuple[int, int]], kind: str, more: str = "") -> str:
    """Return cells of the tile as one path: a thousand boxes would be much text."""
    side = _TILE - 2
    path = "".join(
        f"M{_LEFT + at * _TILE} {_TOP + row * _TILE}h{side}v{side}h-{side}z"
        for row, at in cells
    )
    return f'<path class="{kind}"{more} d="{path}"/>'


def _box(x: float, y: float, width: float, height: float, *, wrong: bool) -> str:
    if wrong:
        return palette.box(x, y, width, height, class_="kw-wrong")
    blue = f"--c: {palette.series(0)}"
    return palette.box(x, y, width, height, class_="kw-used", style=blue)


def _head(words: str) -> str:
    parts = [palette.text(_LEFT, 18, words, class_="kw-head")]
    for bank in range(0, BANKS, 4):
        x = _LEFT + bank * _CELL + _CELL / 2
        parts.append(palette.text(x, 37, str(bank), class_="kw-tick"))
    return "".join(parts)


def _frame(request: Any, served: Sequence[Slot]) -> Frame:
    parts, waited = [], _waiting(request, served)
    for row, slot in enumerate(served[:_MOST_ROWS]):
        y = _TOP + row * _ROW
        label = f"wavefront {row + 1}"
        parts.append(palette.text(_LEFT - 8, y + 16, label, class_="kw-row"))
        for bank in range(BANKS):
            x = _LEFT + bank * _CELL
            size = (_CELL - 2, _ROW - 4)
            if bank not in slot:
                parts.append(palette.box(x, y, *size, class_="kw-none"))
                continue
            parts.append(_box(x, y, *size, wrong=row in waited))
            lanes = slot[bank]
            label = str(lanes[0]) if len(lanes) == 1 else f"×{len(lanes)}"
            parts.append(palette.text(x + _CELL / 2 - 1, y + 15, label))
    return Frame("".join(parts), _words(request, served))


def _waiting(request: Any, served: Sequence[Slot]) -> set[int]:
    """Return the wavefronts past the first of their half or quarter of the warp."""
    together = _LANES_TOGETHER.get(request.width, 32)
    seen, waited = set[int](), set[int]()
    for row, slot in enumerate(served):
        part = next(iter(slot.values()))[0] // together
        if part in seen:
            waited.add(row)
        seen.add(part)
    return waited


def _words(request: Any, served: Sequence[Slot]) -> str:
    ideal = ideal_wavefronts(request)
    count = len(served)
    return (
        f"block {tuple(request.block)}, warp {request.warp}, {request.op} "
        f"{request.occurrence + 1} of this line: {len(request.lanes)} lanes of "
        f"{request.width} bytes, {count} wavefront{'' if count == 1 else 's'} "
        f"({ideal} at best)"
    )


def ideal_wavefronts(request: Any) -> int:
    """Return how many parts of the warp are served one after another at best."""
    together = _LANES_TOGETHER.get(request.width, 32)
    return len({lane[0] // together for lane in request.lanes})
