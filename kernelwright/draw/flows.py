"""A chain's traffic as flows: what kernels read and write, fused one after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import torch

from kernelwright.draw import palette
from kernelwright.draw.chain import Chain, Kernel, Value, chain_of, size
from kernelwright.draw.steps import Frame, Steps
from kernelwright.errors import ArgumentError

_MOST = 14  # operations that can still be read in one picture
_WIDTH = 492.0
_LABEL, _BOX, _BOX_RIGHT = 108.0, 148.0, 344.0  # where labels end, kernels begin, end
_TOP, _SLOT, _PAD = 40.0, 17.0, 12.0
_THICK = 30.0  # of the widest kernel's flows, on its one side
_BARS = 92.0  # the chart of totals, below
_LETTERS, _NAME = 27, 8  # that an operation in its box has room for; a tensor's name


def fusion_flows(function: Callable[..., Any], *tensors: torch.Tensor) -> Steps:
    """Draw what a chain of operations moves, and what is left of it when it is fused.

    The first picture is eager PyTorch, a kernel an operation. Each step takes one
    operation more into the first kernel, until one kernel is left. What flows in on
    the left is read from memory, what flows out on the right is written to it.

    Args:
        function: of torch's operations, at most 14 of them that launch a kernel.
        tensors: its arguments, on any device; ``meta`` will do.

    Raises:
        ArgumentError: too many operations, or none.
    """
    chain = chain_of(function, *tensors)
    if chain.launches > _MOST:
        raise ArgumentError(
            f"{chain.name} launches {chain.launches} kernels; wanted at most {_MOST}, "
            "which can be read in one picture: draw a part of it."
        )
    states = [chain.fused(first) for first in range(1, chain.launches + 1)]
    layout = _Layout(chain, states)
    return Steps(
        [
            Frame(layout.picture(at), _words(states[at], states[0], at))
            for at in range(len(states))
        ],
        layout.base(),
        _WIDTH,
        layout.height,
        "Fused",
        _caption(chain),
        wide=False,
        narrow=True,
    )


def _caption(chain: Chain) -> str:
    wide = [each.text for each in chain.operations if not each.elementwise]
    said = (
        f"{chain.name}: a box is a kernel, and flows are as "
        "wide as the bytes that it reads (left) and writes (right). Blue is what goes "
        "in, green what comes out; orange is written only to be read again, and "
        "disappears when its writer and its readers are one kernel. The columns are "
        "the totals, from eager to fused."
    )
    if wide:
        said += (
            f" A dashed frame needs more than one element at a time "
            f"({wide[0].split(' = ')[-1]}): it fuses only with what keeps these."
        )
    return said


def _words(kernels: Sequence[Kernel], eager: Sequence[Kernel], at: int) -> str:
    moved, before = _total(kernels), _total(eager)
    count = len(kernels)
    head = f"{count} launch{'es' * (count != 1)}, {size(moved)}"
    if not at:
        return f"Eager: {head}" + ("." if count > 1 else ": nothing to fuse.")
    last = "all in one kernel" if count == 1 else f"{at + 1} operations are one kernel"
    less = f", {moved / before:.0%} of eager's" if moved < before else ""
    return f"{last[0].upper()}{last[1:]}: {head}{less}."


def _total(kernels: Sequence[Kernel]) -> int:
    return sum(kernel.nbytes for kernel in kernels)


def _short(text: str, letters: int) -> str:
    return text if len(text) <= letters else text[: letters - 1] + "…"


class _Layout:
    """Where a chain's rows, flows and columns are."""

    def __init__(self, chain: Chain, states: Sequence[Sequence[Kernel]]) -> None:
        self._chain, self._states = chain, states
        self._inputs = {value.key for value in chain.inputs}
        widest = max(
            sum(value.nbytes for value in side)
            for kernel in states[0]
            for side in (kernel.reads, kernel.writes)
        )
        self._scale = _THICK / max(widest, 1)
        heights = (self._height(kernel) for kernel in states[0])
        self._tops = list(accumulate(heights, initial=_TOP))
        self._floor = self._tops[-1] + _BARS + 10
        self._step = min((_WIDTH - 90) / len(states), 84.0)
        self.height = self._floor + 34

    def _height(self, kernel: Kernel) -> float:
        sides = (kernel.reads, kernel.writes)
        return max(sum(map(self._slot, side)) for side in sides) + 2 * _PAD

    def _thick(self, value: Value) -> float:
        return max(value.nbytes * self._scale, 1.5)

    def _slot(self, value: Value) -> float:
        return max(self._thick(value) + 2, _SLOT)

    # --- what all frames share ----------------------------------------------------

    def base(self) -> str:
        """Draw memory, on both sides, and the totals of every state."""
        parts = [
            palette.text(6, 20, "read from memory", class_="kw-head"),
            palette.text(_WIDTH - 6, 20, "written", class_="kw-head",
                         style="text-anchor: end"),
        ]  # fmt: skip
        for left in (_LABEL + 4, _WIDTH - _LABEL - 10):
            parts.append(
                palette.box(left, _TOP, 6, self._tops[-1] - _TOP, class_="kw-shared")
            )
        return "".join([*parts, self._columns()])

    def _columns(self) -> str:
        """Draw each state's total: a column as high as its bytes, launches below."""
        parts = []
        for y, said in ((-4.0, "bytes"), (17.0, "launches")):
            parts.append(
                palette.text(78, self._floor + y, said, class_="kw-tick",
                             style="text-anchor: end")
            )  # fmt: skip
        for at, kernels in enumerate(self._states):
            parts.append(self._column(at, class_="kw-masked"))
            count = str(len(kernels))
            middle = self._place(at)[0] + self._step / 2
            parts.append(
                palette.text(middle, self._floor + 17, count, class_="kw-tick")
            )
            if self._step > 60:
                parts.append(self._total_of(at))
        return "".join(parts)

    def _column(self, at: int, **attributes: object) -> str:
        left, high = self._place(at)
        return palette.box(
            left + 4, self._floor - high, self._step - 8, high, **attributes
        )

    def _total_of(self, at: int) -> str:
        left, high = self._place(at)
        said = size(_total(self._states[at]))
        return palette.text(left + self._step / 2, self._floor - high - 5, said)

    def _place(self, at: int) -> tuple[float, float]:
        """Return where a state's column begins, and how high it is."""
        totals = [_total(kernels) for kernels in self._states]
        high = max(_BARS * 0.6 * totals[at] / max(*totals, 1), 1.5)
        return 84 + at * self._step, high

    # --- one state ----------------------------------------------------------------

    def picture(self, at: int) -> str:
        """Draw the kernels of a state, their flows, and mark its column."""
        row, parts = 0, []
        for kernel in self._states[at]:
            parts.append(self._drawn(kernel, row))
            row += len(kernel.operations)
        colour = palette.series(0)
        parts.append(self._column(at, class_="kw-used", style=f"--c: {colour}"))
        if self._step <= 60:
            parts.append(self._total_of(at))
        return "".join(parts)

    def _drawn(self, kernel: Kernel, row: int) -> str:
        top, bottom = self._tops[row] + 4, self._tops[row + len(kernel.operations)] - 4
        whole = all(each.elementwise for each in kernel.operations)
        parts = [
            self._flows(kernel.reads, top, bottom, reads=True),
            self._flows(kernel.writes, top, bottom, reads=False),
            palette.box(
                _BOX, top, _BOX_RIGHT - _BOX, bottom - top, fill="none",
                stroke=palette.INK, stroke_dasharray="none" if whole else "5 4",
            ),
        ]  # fmt: skip
        middle = (_BOX + _BOX_RIGHT) / 2
        for offset, each in enumerate(kernel.operations):
            y = (self._tops[row + offset] + self._tops[row + offset + 1]) / 2 + 4
            parts.append(palette.text(middle, y, _short(each.text, _LETTERS)))
        return "".join(parts)

    def _flows(
        self, values: Sequence[Value], top: float, bottom: float, *, reads: bool
    ) -> str:
        y = (top + bottom - sum(map(self._slot, values))) / 2
        parts = []
        for value in values:
            slot, thick = self._slot(value), self._thick(value)
            parts.append(self._flow(value, y + slot / 2, thick, reads=reads))
            y += slot
        return "".join(parts)

    def _flow(self, value: Value, y: float, thick: float, *, reads: bool) -> str:
        """Draw one flow, an arrow to the right, with its name at memory's end."""
        inner = _BOX if reads else _WIDTH - _LABEL - 10
        outer = _LABEL + 10 if reads else _BOX_RIGHT
        tip = min(6.0, thick)
        half = thick / 2
        path = (
            f"M{outer:g} {y - half:g}H{inner - tip:g}L{inner:g} {y:g}"
            f"L{inner - tip:g} {y + half:g}H{outer:g}z"
        )
        said = f"{_short(value.name, _NAME)}, {size(value.nbytes)}"
        at = _LABEL if reads else _WIDTH - _LABEL
        anchor = "end" if reads else "start"
        return (
            f'<path class="kw-used" style="--c: {palette.series(self._colour(value))}" '
            f'd="{path}"/>'
            + palette.text(at, y + 5, said, style=f"text-anchor: {anchor}")
        )

    def _colour(self, value: Value) -> int:
        if value.key in self._chain.results:
            return 2
        return 0 if value.key in self._inputs or value.name == "constant" else 1
