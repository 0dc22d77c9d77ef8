"""The lane map: which lanes of a block's warps take part, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from kernelwright.draw import palette
from kernelwright.draw.steps import Frame, Steps, nothing_to_draw

_CELL, _BOX, _ROW, _LEFT, _TOP, _HEAD = 19, 17, 21, 84, 26, 34
_WARP = 32

Step = dict[int, list[int]]  # warp -> its lanes that take part


def lane_map(*reports: Any, line: int | None = None, op: str = "store") -> Steps:
    """Draw which lanes take part each time that a line touches shared memory.

    A row is a warp, a square a lane. Blue lanes take part; orange ones belong to a
    warp that takes part and have nothing to do in it; an empty row rests. Of several
    reports the same step is shown, one below the other.

    Args:
        reports: what ``kernel.trace[grid, block](…)`` returned; the first block of
            each is drawn.
        line: of the source; by default the one that a warp comes back to most often.
        op: ``load`` or ``store``: a line that does both would count twice.
    """
    panels = [(report, steps_of(report, line, op)) for report in reports]
    if not any(steps for _, steps in panels):
        return nothing_to_draw("shared memory", op)
    most = max(len(steps) for _, steps in panels)
    base, y = "", float(_TOP)
    tops = []
    for report, _ in panels:
        tops.append(y)
        base += _base(report, y)
        y += _HEAD + _warps(report) * _ROW + 26
    frames = []
    for number in range(most):
        drawn, said = "", []
        for (report, steps), top in zip(panels, tops, strict=True):
            step = steps[number] if number < len(steps) else {}
            drawn += _step(step, top + _HEAD)
            said.append(_words(report.kernel, step, bool(steps)))
        frames.append(Frame(drawn, f"step {number + 1} of {most}: " + "; ".join(said)))
    return Steps(
        frames,
        base,
        _LEFT + _WARP * _CELL + 6,
        y,
        "Step",
        "A row is a warp of the first block. Blue lanes work; orange ones wait inside "
        "a warp that works; empty rows are warps with nothing left to do.",
    )


def steps_of(report: Any, line: int | None = None, op: str = "store") -> list[Step]:
    """Return the lanes of the first block's warps, each time that they took part."""
    found = [
        request
        for request in report.accesses(line=line, space="shared")
        if request.op == op
    ]
    first = [request for request in found if request.block == found[0].block]
    turns: dict[int, dict[int, list[list[int]]]] = {}
    first.sort(key=lambda request: (request.line, request.warp, request.order))
    for (at, warp), each in groupby(first, key=lambda r: (r.line, r.warp)):
        turns.setdefault(at, {})[warp] = [[lane[0] for lane in r.lanes] for r in each]
    if not turns:
        return []
    chosen = max(turns.values(), key=lambda warps: max(map(len, warps.values())))
    return [
        {warp: lanes[k] for warp, lanes in chosen.items() if k < len(lanes)}
        for k in range(max(map(len, chosen.values())))
    ]


def _warps(report: Any) -> int:
    threads = report.block[0] * report.block[1] * report.block[2]
    return -(-int(threads) // _WARP)


def _base(report: Any, y: float) -> str:
    parts = [palette.text(_LEFT, y, report.kernel, class_="kw-head")]
    for lane in range(0, _WARP, 4):
        x = _LEFT + lane * _CELL + _BOX / 2
        parts.append(palette.text(x, y + _HEAD - 8, str(lane), class_="kw-tick"))
    for warp in range(_warps(report)):
        top = y + _HEAD + warp * _ROW
        parts.append(palette.text(_LEFT - 8, top + 14, f"warp {warp}", class_="kw-row"))
        parts.append(
            f'<path class="kw-none" d="{_squares(range(_WARP), top)}"/>',
        )
    return "".join(parts)


def _step(step: Step, y: float) -> str:
    parts = []
    for warp, lanes in step.items():
        top = y + warp * _ROW
        idle = sorted(set(range(_WARP)) - set(lanes))
        if idle:
            parts.append(f'<path class="kw-waste" d="{_squares(idle, top)}"/>')
        parts.append(
            f'<path class="kw-used" style="--c: {palette.series(0)}" '
            f'd="{_squares(lanes, top)}"/>'
        )
    return "".join(parts)


def _squares(lanes: Sequence[int], top: float) -> str:
    return "".join(
        f"M{_LEFT + lane * _CELL:g} {top:g}h{_BOX}v{_BOX}h-{_BOX}z" for lane in lanes
    )


def _words(kernel: str, step: Step, works: bool) -> str:
    if not step:
        return f"{kernel} is done" if works else f"{kernel} does nothing yet"
    working = sum(map(len, step.values()))
    carried = _WARP * len(step)
    warps = f"{len(step)} warp{'s' * (len(step) != 1)}"
    return f"{kernel}: {working} of {carried} lanes work, in {warps}"
