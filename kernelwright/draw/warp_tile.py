"""The warp tile: which groups of 4 x 4 sums each lane of a warp keeps."""

from __future__ import annotations

from typing import Any

from kernelwright.draw import palette
from kernelwright.draw.steps import Frame, Steps, nothing_to_draw

Groups = dict[int, list[tuple[int, int]]]
"""For each lane its groups, as (row, column) of the warp's part in fours."""

_ROWS, _COLUMNS, _SIDE = 64, 32, 128  # of a warp's part, and of the block's square
_CELL, _HIGH, _LEFT, _TOP = 27, 19, 218, 72
_BLOCK_LEFT, _BLOCK = 6, 140
_OWN, _OF_A, _OF_B = (f"--c: {palette.series(each)}" for each in (0, 1, 2))


def warp_tile(report: Any = None) -> Steps:
    """Draw the 64 x 32 sums of a warp, group by group, and what a lane loads for them.

    A cell is a group of 4 x 4 sums, with the number of the lane that keeps it. The
    slider chooses a lane: its groups, and the pieces of 16 bytes of the column of a
    and of the row of b that it loads for one step.

    Args:
        report: a trace of one block of 256 threads with 128 x 128 sums, which shows
            who stored what of c; by default chapter 6's order of lanes.
    """
    groups = _by_turns() if report is None else _stored(report)
    if len(groups) < 32:
        return nothing_to_draw("a whole warp tile", "store")
    frames = [Frame("", "all lanes: each keeps 2 x 2 groups of 4 x 4 sums")]
    frames += [Frame(_drawn(groups[lane]), _said(lane, groups)) for lane in range(32)]
    return Steps(
        frames,
        _base(groups),
        _LEFT + 8 * _CELL + 4,
        _TOP + 16 * _HIGH + 6,
        "Lane",
        "A block's 128 x 128 sums are shared out to eight warps, and a warp's to its "
        "lanes. For one step a lane loads two pieces of 16 bytes of a, and two of b.",
        wide=False,
        narrow=True,
    )


def _by_turns() -> Groups:
    """Return chapter 6's order: a lane's bits count column, row, column, row, row."""
    found = {}
    for lane in range(32):
        row, column = lane // 2 % 2 + lane // 8 * 2, lane % 2 + lane // 4 % 2 * 2
        found[lane] = [(row + r, column + c) for r in (0, 8) for c in (0, 4)]
    return found


def _stored(report: Any) -> Groups:
    """Return which groups the lanes of warp 0 stored."""
    found: dict[int, set[tuple[int, int]]] = {}
    for request in report.accesses(space="global"):
        if request.op != "store" or any(request.block):
            continue
        for lane, (x, *_), _, byte in request.lanes:
            row, column = divmod(byte // 4, _SIDE)
            if x < 32 and row < _ROWS and column < _COLUMNS:
                found.setdefault(lane, set()).add((row // 4, column // 4))
    return {lane: sorted(groups) for lane, groups in found.items()}


def _base(groups: Groups) -> str:
    part_wide, part_high = _BLOCK / 4, _BLOCK / 2
    parts = [
        palette.text(0, 20, "a block's warps", class_="kw-head"),
        palette.text(_LEFT - 24, 20, "warp 0: 64 x 32 sums", class_="kw-head"),
        palette.text(_LEFT - 12, _TOP - 16, "b", class_="kw-tick"),
        palette.text(_LEFT - 14, _TOP - 2, "a", class_="kw-tick"),
    ]
    for warp in range(8):
        x = _BLOCK_LEFT + warp % 4 * part_wide
        y = _TOP + warp // 4 * part_high
        kind = "kw-none" if warp else "kw-used"
        parts.append(palette.box(x, y, part_wide, part_high, class_=kind, style=_OWN))
        parts.append(palette.text(x + part_wide / 2, y + part_high / 2 + 4, str(warp)))
    parts += [
        palette.text(
            _BLOCK_LEFT + _BLOCK / 2, _TOP - 8, "128 columns", class_="kw-tick"
        ),
        palette.text(
            _BLOCK_LEFT + _BLOCK / 2, _TOP + _BLOCK + 18, "128 rows", class_="kw-tick"
        ),
    ]
    parts += [_piece_of_a(row, "kw-none") for row in range(16)]
    parts += [_piece_of_b(column, "kw-none") for column in range(8)]
    for lane, own in groups.items():
        for row, column in own:
            parts.append(_group(row, column, "kw-none"))
            x, y = _LEFT + (column + 0.5) * _CELL, _TOP + row * _HIGH + 14
            parts.append(palette.text(x, y, str(lane)))
    return "".join(parts)


def _drawn(own: list[tuple[int, int]]) -> str:
    parts = [_group(row, column, "kw-used") for row, column in own]
    parts += [_piece_of_a(row, "kw-used") for row in sorted({r for r, _ in own})]
    parts += [_piece_of_b(column, "kw-used") for column in sorted({c for _, c in own})]
    return "".join(parts)


def _group(row: int, column: int, kind: str) -> str:
    x, y = _LEFT + column * _CELL, _TOP + row * _HIGH
    return palette.box(x, y, _CELL - 2, _HIGH - 2, class_=kind, style=_OWN)


def _piece_of_a(row: int, kind: str) -> str:
    y = _TOP + row * _HIGH
    return palette.box(_LEFT - 20, y, 14, _HIGH - 2, class_=kind, style=_OF_A)


def _piece_of_b(column: int, kind: str) -> str:
    x = _LEFT + column * _CELL
    return palette.box(x, _TOP - 28, _CELL - 2, 14, class_=kind, style=_OF_B)


def _said(lane: int, groups: Groups) -> str:
    rows, columns = _side(groups, lane, 0), _side(groups, lane, 1)
    same = [
        [f"{lane ^ bit}" for bit in (1, 2) if _side(groups, lane ^ bit, side) == own]
        for side, own in ((0, rows), (1, columns))
    ]
    of_a, of_b = (" and ".join(lanes) or "neither" for lanes in same)
    return (
        f"lane {lane}: rows {_ranges(rows)}, columns {_ranges(columns)}. Of lanes "
        f"{lane ^ 1} and {lane ^ 2}, the same of a is read by {of_a}, of b by {of_b}"
    )


def _side(groups: Groups, lane: int, side: int) -> list[int]:
    """Return which pieces of a (side 0) or of b (side 1) a lane loads."""
    return sorted({group[side] for group in groups[lane]})


def _ranges(fours: list[int]) -> str:
    return " and ".join(f"{4 * each}-{4 * each + 3}" for each in fours)
