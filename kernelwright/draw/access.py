"""The access map: the elements of a buffer, and who touched each, in order.

Who that is depends on the trace: the warps of a CUDA kernel, or a Triton kernel's
programs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from kernelwright.draw import palette
from kernelwright.draw.access_words import (
    Actors,
    Step,
    actors_of,
    caption_of,
    elements_of,
    group_of,
    own_words,
    step_words,
)
from kernelwright.draw.steps import Frame, Steps, nothing_to_draw

_CELL, _LEFT, _TOP, _SIDE = 22, 110, 34, 20
_NARROW, _HEAD_WIDTH, _HEAD_ROW = 28, 560, 22  # a heading that takes two lines
_MOST_FRAMES, _MOST_ELEMENTS = 64, 4096


def access_map(
    report: Any,
    buffer: str | None = None,
    *,
    columns: int = 32,
    line: int | None = None,
    op: str = "",
    elements: int | None = None,
    limit: int = _MOST_FRAMES,
    by: Literal["", "step", "warp", "program"] = "",
) -> Steps:
    """Draw who touches which element of a buffer, instruction by instruction.

    A cell is an element; its colour, and the number at the start of a run, is the warp
    or the Triton program. The first picture shows all accesses, the slider goes
    through them. Dashed cells are lanes that a mask turned off, red ones were outside.

    Args:
        report: what ``kernel.trace[grid, block](…)`` or
            ``kw.trace_triton(kernel)[grid](…)`` returned.
        buffer: parameter or shared array; by default the one that is written to in
            global memory.
        columns: elements in a row of the picture.
        line: only accesses of this source line.
        op: only ``load``, ``store`` or ``atomic``.
        elements: length of the buffer; by default what is known of it: up to the last
            one touched in a CUDA kernel's, all of it in a Triton kernel's.
        limit: at most so many pictures behind the first.
        by: what the slider goes through: instructions in time (``step``), or one
            ``warp`` or ``program`` after another; by default programs, where each has
            one instruction only.
    """
    actors = actors_of(report)
    made = report.accesses(line=line)
    name = buffer or _written(made)
    kept = [r for r in made if r.op.startswith(op) and _is_in(r, name)]
    found, whose = _one_array(kept, report, actors)
    size = min((r.width for r in found), default=1)
    touched = Counter(e for r in found for e in set(elements_of(r, size)))
    outside = [at // size for r in found for at in getattr(r, "outside", ())]
    if not touched and not outside:
        return nothing_to_draw(name or "memory", op)
    known = max((getattr(r, "size", 0) // size for r in found), default=0)
    count = max(elements or 0, known, max(touched, default=0) + 1)
    steps = _in_time(found)
    numbers = actors.numbers(found)
    sheet = _Sheet(size, columns, min(count, _MOST_ELEMENTS), numbers)
    every = sheet.drawn(found)
    frames = [Frame(every, _overview(name, steps, actors, numbers))]
    chosen = by or (
        "program" if actors.noun == "program" and len(steps) == 1 else "step"
    )
    if chosen == "step":
        for number, step in enumerate(steps[:limit], 1):
            words = step_words(name, step, size, f"{number} of {len(steps)}", actors)
            frames.append(Frame(sheet.drawn(step.requests), words))
    else:
        for who in sorted(numbers)[:limit]:
            own = [r for r in found if group_of(r) == who]
            frames.append(Frame(sheet.drawn(own), own_words(name, own, size, actors)))
    rows = sheet.rows(found)
    return Steps(
        frames,
        sheet.base(name, rows, actors),
        max(_LEFT + columns * _CELL + 6, _HEAD_WIDTH if columns < _NARROW else 0),
        sheet.top + rows * _CELL + 4,
        "Instruction" if chosen == "step" else actors.noun.capitalize(),
        f"{name} in {report.kernel}, {whose}. "
        + caption_of(report, name, kept, found, steps, touched, count, size, actors),
        # Faint pictures of the same element would add up to a strong one.
        trail=max(touched.values(), default=0) <= 2,
        wide=columns >= _NARROW,
    )


def _one_array(
    requests: list[Any], report: Any, actors: Actors
) -> tuple[list[Any], str]:
    """Keep the first block's requests of a shared array: each block has its own."""
    if not requests or requests[0].space != "shared":
        return requests, _traced(report, actors)
    block = min(requests, key=group_of).block
    own = [r for r in requests if r.block == block]
    return own, f"block {', '.join(map(str, block))}"


def _written(requests: Iterable[Any]) -> str:
    found = [r for r in requests if r.space == "global" and r.lanes]
    chosen = [r for r in found if r.op == "store"] or found
    return str(chosen[0].lanes[0][2]) if chosen else ""


def _is_in(request: Any, name: str) -> bool:
    if hasattr(request, "buffer"):  # all of a program's lanes may be off
        return bool(request.buffer == name)
    return bool(request.lanes) and all(lane[2] == name for lane in request.lanes)


def _in_time(requests: Sequence[Any]) -> list[Step]:
    """Put everybody's requests side by side: the same instruction, one step."""
    turns: Counter[Any] = Counter()
    places: Counter[Any] = Counter()
    grouped: dict[tuple[int, str, int], list[Any]] = {}
    earliest: dict[tuple[int, str, int], int] = {}
    for request in requests:
        who = group_of(request)
        turn = turns[who, request.line, request.op]
        turns[who, request.line, request.op] += 1
        key = (request.line, request.op, turn)
        grouped.setdefault(key, []).append(request)
        earliest[key] = min(earliest.get(key, places[who]), places[who])
        places[who] += 1
    order = sorted(grouped, key=lambda key: (earliest[key], key))
    return [Step(*key, sorted(grouped[key], key=group_of)) for key in order]


class _Sheet:
    """Where the elements lie in the picture.

    Args:
        size: bytes of an element.
        columns: elements a row.
        shown: how many elements the buffer has in the picture.
        numbers: what each warp or program is called in it.
    """

    def __init__(
        self, size: int, columns: int, shown: int, numbers: dict[Any, int]
    ) -> None:
        self.size, self.columns, self.shown = size, columns, shown
        self.numbers = numbers
        self.top = _TOP + (_HEAD_ROW if columns < _NARROW else 0)
        # Lanes without an element are drawn as far as the second row behind the last.
        self.most = (-(-shown // columns) + 2) * columns

    def rows(self, requests: Iterable[Any]) -> int:
        """Return how many rows the picture of these needs."""
        beyond = [e for r in requests for e in self._missing(r)]
        return -(-max([self.shown, *(e + 1 for e in beyond)]) // self.columns)

    def drawn(self, requests: Sequence[Any]) -> str:
        """Colour each element by who touches it, or say how many do."""
        who: dict[int, set[int]] = {}
        for request in requests:
            for element in elements_of(request, self.size):
                if element < self.shown:
                    number = self.numbers[group_of(request)]
                    who.setdefault(element, set()).add(number)
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
            parts.append(f'<path {kind} d="{self.squares(chosen)}"/>')
        for kind, name in (("kw-masked", "off"), ("kw-wrong", "outside")):
            lanes = {e for r in requests for e in self._missing(r, name)}
            if lanes:
                squares = self.squares(sorted(lanes - set(who)))
                parts.append(f'<path class="{kind}" d="{squares}"/>')
        return "".join(parts) + self._labels(who)

    def _missing(self, request: Any, *names: str) -> Iterable[int]:
        for name in names or ("off", "outside"):
            for offset in getattr(request, name, ()):
                if 0 <= offset < self.most * self.size:
                    yield offset // self.size

    def _labels(self, who: dict[int, set[int]]) -> str:
        """Write the number, or how many there are, at the start of each run."""
        parts = []
        for element, several in who.items():
            if element % self.columns and who.get(element - 1) == several:
                continue
            label = str(min(several)) if len(several) == 1 else f"×{len(several)}"
            x = _LEFT + element % self.columns * _CELL + _SIDE / 2
            y = self.top + element // self.columns * _CELL + 15
            parts.append(palette.text(x, y, label))
        return "".join(parts)

    def squares(self, elements: Iterable[int]) -> str:
        """Return the path around these elements."""
        places = (divmod(element, self.columns) for element in elements)
        return "".join(
            f"M{_LEFT + x * _CELL} {self.top + y * _CELL}h{_SIDE}v{_SIDE}h-{_SIDE}z"
            for y, x in places
        )

    def base(self, name: str, rows: int, actors: Actors) -> str:
        """Return what all pictures share: heading, numbers of the rows, elements."""
        head = [
            f"elements of {name}, {self.columns} a row",
            f"numbers and colours are {actors.noun}s, ×2 is two",
        ]
        if self.top == _TOP:
            head = ["; ".join(head)]
        parts = [
            palette.text(_LEFT, 20 + _HEAD_ROW * at, words, class_="kw-head")
            for at, words in enumerate(head)
        ]
        for row in range(0, rows, 2 if rows > 8 else 1):
            y = self.top + row * _CELL + 16
            label = f"[{row * self.columns}]"
            parts.append(palette.text(_LEFT - 8, y, label, class_="kw-row"))
        whole = self.squares(range(self.shown))
        return "".join(parts) + f'<path class="kw-none" d="{whole}"/>'


def _overview(
    name: str, steps: Sequence[Step], actors: Actors, numbers: dict[Any, int]
) -> str:
    made = sum(len(step.requests) for step in steps)
    who = actors.counted(len(numbers), actors.noun)
    when = actors.counted(len(steps), "step")
    if actors.noun == "program":
        return f"all accesses to {name}, by {who} in {when}"
    return (
        f"all accesses to {name}: {actors.counted(made, 'request')} by {who}, in {when}"
    )


def _traced(report: Any, actors: Actors) -> str:
    total = getattr(report, "blocks_total", 1)
    traced = getattr(report, "blocks_traced", total)
    return f"all {actors.group}s" if traced == total else f"{traced} of {total} blocks"
