"""The access map: the elements of a buffer, and which warp touched each, in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kernelwright.draw import palette
from kernelwright.draw.banks import ideal_wavefronts, wavefronts
from kernelwright.draw.sectors import ideal_sectors, touched_sectors
from kernelwright.draw.steps import Frame, Steps, nothing_to_draw

_CELL, _LEFT, _TOP, _SIDE = 22, 110, 34, 20
_MOST_FRAMES, _MOST_ELEMENTS = 64, 4096
_DOES = {
    "load": "loads",
    "store": "stores",
    "atomic": "updates",
    "async copy": "copies",
}

Warp = tuple[tuple[int, int, int], int]  # the block's index and the warp's number


@dataclass(frozen=True)
class Step:
    """One instruction, as all warps carry it out.

    Args:
        line, op: which one.
        turn: how often a warp had done it before, from 0.
        requests: one a warp.
    """

    line: int
    op: str
    turn: int
    requests: Sequence[Any]


def access_map(
    report: Any,
    buffer: str | None = None,
    *,
    columns: int = 32,
    line: int | None = None,
    op: str = "",
    elements: int | None = None,
    limit: int = _MOST_FRAMES,
) -> Steps:
    """Draw which warp touches which element of a buffer, instruction by instruction.

    A cell is an element; its colour, and the number at the start of a run, is the warp.
    The first picture shows all accesses, the slider goes through them in time.

    Args:
        report: what ``kernel.trace[grid, block](…)`` returned.
        buffer: parameter or shared array; by default the one that is written to in
            global memory.
        columns: elements in a row of the picture.
        line: only accesses of this source line.
        op: only ``load``, ``store`` or ``atomic``.
        elements: length of the buffer; by default up to the last one touched.
        limit: at most so many instructions.
    """
    made = report.accesses(line=line)
    name = buffer or _written(made)
    kept = [r for r in made if r.op.startswith(op) and _is_in(r, name)]
    found, whose = _one_array(kept, report)
    size = min((r.width for r in found), default=1)
    touched = Counter(e for r in found for e in set(_elements(r, size)))
    if not touched:
        return nothing_to_draw(name or "memory", op)
    count = max(elements or 0, max(touched) + 1)
    shown = min(count, _MOST_ELEMENTS)
    steps = _in_time(found)
    warps = {warp: at for at, warp in enumerate(sorted({_warp(r) for r in found}))}
    every = _drawn(found, warps, size, columns, shown)
    frames = [Frame(every, _overview(name, steps, warps))]
    for number, step in enumerate(steps[:limit], 1):
        drawn = _drawn(step.requests, warps, size, columns, shown)
        words = _words(name, step, size, f"{number} of {len(steps)}")
        frames.append(Frame(drawn, words))
    total = _requests(report, name, {(r.line, r.op) for r in kept})
    verdict = _verdict(touched, count, {r.op for r in found})
    if total > len(kept):
        verdict = f"The first {len(kept):,} of {total:,} requests are drawn."
    rows = -(-shown // columns)
    return Steps(
        frames,
        _base(name, rows, columns, shown),
        _LEFT + columns * _CELL + 6,
        _TOP + rows * _CELL + 4,
        "Instruction",
        f"{name} in {report.kernel}, {whose}. {verdict} {_conclusions(steps, size)}",
        # Faint pictures of the same element would add up to a strong one.
        trail=max(touched.values()) <= 2,
    )


def _one_array(requests: list[Any], report: Any) -> tuple[list[Any], str]:
    """Keep the first block's requests of a shared array: each block has its own."""
    if not requests or requests[0].space != "shared":
        return requests, _traced(report)
    block = min(requests, key=_warp).block
    own = [r for r in requests if r.block == block]
    return own, f"block {', '.join(map(str, block))}"


def _written(requests: Iterable[Any]) -> str:
    found = [r for r in requests if r.space == "global" and r.lanes]
    chosen = [r for r in found if r.op == "store"] or found
    return str(chosen[0].lanes[0][2]) if chosen else ""


def _is_in(request: Any, name: str) -> bool:
    return bool(request.lanes) and all(lane[2] == name for lane in request.lanes)


def _warp(request: Any) -> Warp:
    # Blocks in their own order: x changes fastest.
    return tuple(reversed(request.block)), request.warp


def _elements(request: Any, size: int) -> list[int]:
    """Return the elements that a request touches, those before the buffer left out."""
    each = range(max(1, request.width // size))
    first = (lane[3] // size for lane in request.lanes if lane[3] >= 0)
    return [at + more for at in first for more in each]


def _in_time(requests: Sequence[Any]) -> list[Step]:
    """Put the requests of all warps side by side: the same instruction, one step."""
    turns: Counter[tuple[Warp, int, str]] = Counter()
    places: Counter[Warp] = Counter()
    grouped: dict[tuple[int, str, int], list[Any]] = {}
    earliest: dict[tuple[int, str, int], int] = {}
    for request in requests:
        warp = _warp(request)
        turn = turns[warp, request.line, request.op]
        turns[warp, request.line, request.op] += 1
        key = (request.line, request.op, turn)
        grouped.setdefault(key, []).append(request)
        earliest[key] = min(earliest.get(key, places[warp]), places[warp])
        places[warp] += 1
    order = sorted(grouped, key=lambda key: (earliest[key], key))
    return [Step(*key, sorted(grouped[key], key=_warp)) for key in order]


def _drawn(
    requests: Sequence[Any],
    warps: dict[Warp, int],
    size: int,
    columns: int,
    shown: int,
) -> str:
    """Colour each element by its warp, or say how many warps share it."""
    who: dict[int, set[int]] = {}
    for request in requests:
        for element in _elements(request, size):
            if element < shown:
                who.setdefault(element, set()).add(warps[_warp(request)])
    cells: dict[int | None, list[int]] = {}
    for element, several in sorted(who.items()):
        key = next(iter(several)) if len(several) == 1 else None
        cells.setdefault(key, []).append(element)
    parts = []
    for key, chosen in cells.items():
        kind = (
            'class="kw-shared"'
            if key is None
            else f'class="kw-used" style="--c: {palette.series(key)}"'
        )
        parts.append(f'<path {kind} d="{_squares(chosen, columns)}"/>')
    return "".join(parts) + _numbers(who, columns)


def _numbers(who: dict[int, set[int]], columns: int) -> str:
    """Write the warp, or how many there are, at the start of each run of cells."""
    parts = []
    for element, several in who.items():
        if element % columns and who.get(element - 1) == several:
            continue
        label = str(min(several)) if len(several) == 1 else f"×{len(several)}"
        x = _LEFT + element % columns * _CELL + _SIDE / 2
        y = _TOP + element // columns * _CELL + 15
        parts.append(palette.text(x, y, label))
    return "".join(parts)


def _squares(elements: Iterable[int], columns: int) -> str:
    return "".join(
        f"M{_LEFT + e % columns * _CELL} {_TOP + e // columns * _CELL}"
        f"h{_SIDE}v{_SIDE}h-{_SIDE}z"
        for e in elements
    )


def _base(name: str, rows: int, columns: int, shown: int) -> str:
    head = (
        f"elements of {name}, {columns} a row; numbers and colours are warps, ×2 is two"
    )
    parts = [palette.text(_LEFT, 20, head, class_="kw-head")]
    for row in range(0, rows, 2 if rows > 8 else 1):
        y = _TOP + row * _CELL + 16
        label = f"[{row * columns}]"
        parts.append(palette.text(_LEFT - 8, y, label, class_="kw-row"))
    return (
        "".join(parts)
        + f'<path class="kw-none" d="{_squares(range(shown), columns)}"/>'
    )


def _overview(name: str, steps: Sequence[Step], warps: dict[Warp, int]) -> str:
    made = sum(len(step.requests) for step in steps)
    return (
        f"all accesses to {name}: {_counted(made, 'request')} by "
        f"{_counted(len(warps), 'warp')}, in {_counted(len(steps), 'step')}"
    )


def _words(name: str, step: Step, size: int, number: str) -> str:
    request = step.requests[0]
    elements = _elements(request, size)
    ends = f"{name}[{min(elements)}]" if elements else f"before {name}"
    if len(set(elements)) > 1:
        ends += f" to {name}[{max(elements)}]"
    block = ", ".join(map(str, request.block))
    return (
        f"step {number}, line {step.line} {_DOES[step.op]}: "
        f"{_counted(len(step.requests), 'warp')}; the first (block {block}, warp "
        f"{request.warp}) {ends}, {_spacing(step.requests, size)}; "
        f"{_cost(step.requests)}"
    )


def _spacing(requests: Sequence[Any], size: int) -> str:
    """Say how far apart neighbouring lanes are, if they all are alike."""
    apart = {
        after[3] - before[3]
        for request in requests
        for before, after in zip(request.lanes, request.lanes[1:], strict=False)
        if after[0] == before[0] + 1
    }
    if len(apart) != 1:
        return "lanes at mixed distances" if apart else "one lane"
    bytes_apart = apart.pop()
    if bytes_apart == 0:
        return "all lanes the same element"
    if bytes_apart % size:
        return f"neighbouring lanes {bytes_apart} bytes apart"
    return f"neighbouring lanes {_counted(bytes_apart // size, 'element')} apart"


def _cost(requests: Sequence[Any]) -> str:
    if requests[0].space == "shared":
        spent = sum(len(wavefronts(r)) for r in requests) / len(requests)
        best = sum(ideal_wavefronts(r) for r in requests) / len(requests)
        thing = "wavefront"
    else:
        spent = sum(len(touched_sectors(r)) for r in requests) / len(requests)
        best = sum(ideal_sectors(r) for r in requests) / len(requests)
        thing = "sector"
    return (
        f"{spent:.3g} {thing}{'' if spent == 1 else 's'} a request, {best:.3g} at best"
    )


def _conclusions(steps: Sequence[Step], size: int) -> str:
    """Sum each line up; a figure of many lines keeps to the first four."""
    by_line: dict[tuple[int, str], list[Any]] = {}
    for step in steps:
        by_line.setdefault((step.line, step.op), []).extend(step.requests)
    said = [
        f"line {line} {_DOES[op]} with {_spacing(made, size)}: {_cost(made)}"
        for (line, op), made in list(by_line.items())[:4]
    ]
    text = "; ".join(said)
    return f"{text[0].upper()}{text[1:]}."


def _verdict(touched: Counter[int], count: int, ops: set[str]) -> str:
    done = {"load": "loaded", "store": "stored"}.get(ops.pop(), "touched")
    if ops:
        done = "touched"
    missing = count - len(touched)
    least, most = min(touched.values()), max(touched.values())
    often = _times(least) if least == most else f"{least} to {most} times"
    if (least, most) == (1, 2):
        often = "once or twice"
    whole = f"Each of {count:,} elements" if count > 1 else "The element"
    if missing:
        whole = f"{missing:,} of {count:,} elements are not {done}, each other one"
    return f"{whole} is {done} {often}."


def _requests(report: Any, name: str, sites: set[tuple[int, str]]) -> int:
    """Count the requests that were made; the trace keeps only the first ones whole."""
    return sum(
        access.requests
        for access in getattr(report, "lines", ())
        if access.buffer == name and (access.line, access.op) in sites
    )


def _traced(report: Any) -> str:
    total = getattr(report, "blocks_total", 1)
    traced = getattr(report, "blocks_traced", total)
    return "all blocks" if traced == total else f"{traced} of {total} blocks"


def _times(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number, f"{number} times")


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
