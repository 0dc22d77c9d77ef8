"""The launch map: the threads of a launch above, the elements they wrote below."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kernelwright.cuda import Kernel, Launcher
from kernelwright.draw import palette
from kernelwright.draw.script import SCRIPT, STYLE
from kernelwright.draw.writers import Writes, record_writes

_CELL, _ROW, _LEFT, _GAP = 44, 42, 84, 3


@dataclass(frozen=True, repr=False)
class LaunchMap:
    """A drawn launch; a notebook shows it, ``str`` says it in words.

    Args:
        kernel: the kernel's name.
        writes: which thread wrote which element.
        columns: cells in a row.
    """

    kernel: str
    writes: Writes
    columns: int = 16

    @property
    def unwritten(self) -> list[int]:
        """Elements that no thread wrote."""
        return sorted(set(range(self.writes.elements)) - set(self.writes.writers))

    @property
    def shared(self) -> list[int]:
        """Elements that more than one thread wrote."""
        return sorted(i for i, who in self.writes.writers.items() if len(who) > 1)

    @property
    def outside(self) -> list[int]:
        """Indices before the first or past the last element that were written."""
        inside = range(self.writes.elements)
        return sorted(i for i in self.writes.writers if i not in inside)

    @property
    def idle(self) -> int:
        """How many threads wrote nothing."""
        return sum(not indices for indices in self.writes.by_thread)

    def __str__(self) -> str:
        w = self.writes
        verdicts = []
        if self.unwritten:
            verdicts.append(f"nobody writes {_ranges(self.unwritten)}")
        if self.shared:
            verdicts.append(f"several threads write {_ranges(self.shared)}")
        if self.outside:
            verdicts.append(f"outside of the array: {_ranges(self.outside)}")
        if not verdicts:
            verdicts.append("every element has one writer")
        if self.idle:
            verdicts.append(f"{_counted(self.idle, 'thread')} wrote nothing")
        launch = (
            f"{self.kernel}: {_counted(w.blocks, 'block')} of "
            f"{_counted(w.threads, 'thread')}, {_counted(w.elements, 'element')}"
        )
        return f"{launch}: {'; '.join(verdicts)}."

    __repr__ = __str__

    def svg(self) -> str:
        """Return the picture alone: it says all without script or pointer."""
        w = self.writes
        threads = len(w.by_thread)
        title = palette.unique("kw-title")
        top = [
            palette.text(_LEFT, 22, "threads, by block: threadIdx.x", class_="kw-head")
        ]
        top += self._row_names(threads, 34, self._thread_row_name)
        for thread, indices in enumerate(w.by_thread):
            block = thread // w.threads
            top.append(
                self._cell(
                    thread,
                    34,
                    str(thread % w.threads),
                    palette.series(block) if indices else None,
                    "kw-thread" if indices else "kw-thread kw-idle",
                    f'data-thread="{thread}"',
                )
            )
        lower = 34 + self._height(threads) + 44
        head = "elements of out, and who wrote them"
        if self.unwritten or self.shared or self.outside:
            head += " (red: wrong)"
        bottom = [palette.text(_LEFT, lower - 12, head, class_="kw-head")]
        shown = [*range(w.elements), *(i for i in self.outside if i >= w.elements)]
        bottom += self._row_names(len(shown), lower, lambda at: f"[{at}]")
        writers = w.writers
        for place, index in enumerate(shown):
            bottom.append(self._element(place, lower, index, writers.get(index, [])))
        width = _LEFT + self.columns * _CELL + 8
        height = lower + self._height(len(shown)) + 6
        return (
            f'<svg viewBox="0 0 {width} {height}" role="img" aria-labelledby="{title}" '
            f'xmlns="http://www.w3.org/2000/svg"><title id="{title}">'
            f"{html.escape(str(self))}</title>{''.join(top)}{''.join(bottom)}</svg>"
        )

    def _repr_html_(self) -> str:
        w = self.writes
        figure = palette.unique("kw-launch")
        data = {
            "threads": w.threads,
            "elements": w.elements,
            "writes": [list(indices) for indices in w.by_thread],
        }
        last = len(w.by_thread) - 1
        return (
            f'<figure class="kw-launch" id="{figure}"><style>{STYLE}</style>'
            f"{self.svg()}"
            f'<div class="kw-control"><label for="{figure}-slider">Follow thread'
            f'</label><input type="range" data-lm-suppress-shortcuts="true" '
            f'id="{figure}-slider" min="-1" max="{last}" '
            f'value="-1" aria-describedby="{figure}-words">'
            f'<output id="{figure}-words" for="{figure}-slider" aria-live="polite">'
            "all threads</output></div>"
            f"<figcaption>{html.escape(str(self))}</figcaption>"
            f"<script>({SCRIPT})({json.dumps(figure)}, {json.dumps(data)});</script>"
            "</figure>"
        )

    def _element(
        self, place: int, top: float, index: int, writers: Sequence[int]
    ) -> str:
        outside = index >= self.writes.elements
        if not writers:
            return self._cell(place, top, "–", None, "kw-element kw-hole", "")
        label = str(writers[0] % self.writes.threads)
        if len(writers) > 1:
            label = f"×{len(writers)}"
        wrong = outside or len(writers) > 1
        return self._cell(
            place,
            top,
            label,
            palette.series(writers[0] // self.writes.threads),
            "kw-element kw-wrong" if wrong else "kw-element",
            f'data-element="{index}"',
        )

    def _cell(
        self,
        place: int,
        top: float,
        label: str,
        colour: str | None,
        kind: str,
        data: str,
    ) -> str:
        x = _LEFT + place % self.columns * _CELL
        y = top + place // self.columns * _ROW
        paint = f"--c: {colour}" if colour else "--c: transparent"
        inside = palette.box(x, y, _CELL - _GAP, _ROW - _GAP) + palette.text(
            x + (_CELL - _GAP) / 2, y + _ROW / 2 + 5, label
        )
        return f'<g class="kw-cell {kind}" style="{paint}" {data}>{inside}</g>'

    def _row_names(
        self, cells: int, top: float, name: Callable[[int], str]
    ) -> Iterable[str]:
        for row in range(-(-cells // self.columns)):
            label = name(row * self.columns)
            y = top + row * _ROW + _ROW / 2 + 4
            yield palette.text(_LEFT - 8, y, label, class_="kw-row")

    def _thread_row_name(self, thread: int) -> str:
        last = min(thread + self.columns, len(self.writes.by_thread)) - 1
        first, last = thread // self.writes.threads, last // self.writes.threads
        return f"block {first}" if first == last else f"{first} – {last}"

    def _height(self, cells: int) -> int:
        return max(1, -(-cells // self.columns)) * _ROW


def launch_map(
    launcher: Launcher | Kernel, *arguments: object, columns: int = 16
) -> LaunchMap:
    """Draw which thread of a launch wrote which element of the output.

    The kernel runs on the emulator, each thread alone, on copies of the arguments:
    ``launch_map(vector_add[2, 8], x, y, out, n)``.

    Args:
        launcher: ``kernel[grid, block]``, in one dimension and at most 256 threads.
        arguments: as for the launch; the output is the one that is not ``const``,
            at most 512 elements.
        columns: cells in a row.

    Raises:
        ArgumentError: a launch or an output that is too large for a picture.
    """
    if isinstance(launcher, Kernel):
        launcher(*arguments)  # refuses, and says how a launch is written
        raise AssertionError("a kernel without a launch was called")
    return LaunchMap(launcher.kernel.name, record_writes(launcher, arguments), columns)


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _ranges(indices: Sequence[int]) -> str:
    """Spell sorted indices as ``out[3], out[5..8]``, the first few of them."""
    runs: list[list[int]] = []
    for index in indices:
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    named = [f"out[{a}]" if a == b else f"out[{a}..{b}]" for a, b in runs[:4]]
    if len(runs) > 4:
        named.append(f"and {len(runs) - 4} more stretches")
    return ", ".join(named)
