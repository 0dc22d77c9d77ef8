"""Items in a pipeline with valid and ready, stage by stage and cycle by cycle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernelwright.draw import palette
from kernelwright.draw.live import Explorer, Picture
from kernelwright.draw.steps import Frame, Steps
from kernelwright.errors import ArgumentError

_MOST_STAGES, _MOST_CYCLES = 8, 24  # that can still be read in one picture
_WIDTH, _LEFT, _TOP, _ROW = 492.0, 92.0, 46.0, 27.0
_GIVES = {"every cycle": (1,), "every other": (1, 0), "in bursts of 3": (1, 1, 1, 0, 0)}
_TAKES = {
    "every cycle": (1,),
    "every other": (1, 0),
    "one in three": (0, 0, 1),
    "not for a while": (1,) * 6 + (0,) * 6 + (1,) * 12,
}


@dataclass(frozen=True)
class _Cycle:
    """What the stages hold in a cycle, and what passes at its end.

    Args:
        held: of each stage, the number of its item, or none.
        moves: whether the stages advance at its end.
        taken: whether the outside takes an item.
        offered: the item that waits before the pipeline, or none.
    """

    held: tuple[int | None, ...]
    moves: bool
    taken: bool
    offered: int | None


def explore_pipeline(
    stages: Sequence[str] = ("product", "sum", "weight", "weighed"),
    *,
    gives: Mapping[str, Sequence[int]] = _GIVES,
    takes: Mapping[str, Sequence[int]] = _TAKES,
    cycles: int = 18,
) -> Explorer:
    """Let the reader choose when the outside gives and takes, and follow each item.

    All stages advance in the cycles in which the last one is empty or its item is
    taken.

    Args:
        stages: their names, at most 8.
        gives: patterns to choose from, repeated: whether there is a next item.
        takes: patterns to choose from: whether there is room outside.
        cycles: how many are drawn, at most 24.

    Raises:
        ArgumentError: there is too much for one picture.
    """
    if not (1 <= len(stages) <= _MOST_STAGES and 1 <= cycles <= _MOST_CYCLES):
        raise ArgumentError(
            f"{len(stages)} stages and {cycles} cycles; wanted up to {_MOST_STAGES} "
            f"and {_MOST_CYCLES}, which can be read in one picture."
        )

    def draw(give: str, take: str) -> Picture:
        ran = _run(len(stages), gives[give], takes[take], cycles)
        height = _TOP + _ROW * (len(stages) + 2) + 8
        drawn = Steps([Frame(_pictured(ran, stages), "")], "", _WIDTH, height, "", "",
                      wide=False, narrow=True)  # fmt: skip
        return Picture(drawn, _words(ran))

    return Explorer(
        {"the outside gives": tuple(gives), "the outside takes": tuple(takes)},
        draw,
        "A column is a clock cycle, a row a stage; the number is the item that the "
        "stage holds. Dashed items stand still: the last stage holds one that nobody "
        "takes. Empty cells are bubbles, which move on like items.",
    )


def _run(
    stages: int, gives: Sequence[int], takes: Sequence[int], cycles: int
) -> list[_Cycle]:
    held: tuple[int | None, ...] = (None,) * stages
    offered: int | None = None
    following, ran = 0, []
    for cycle in range(cycles):
        if offered is None and gives[cycle % len(gives)]:
            offered, following = following, following + 1
        ready = bool(takes[cycle % len(takes)])
        moves = held[-1] is None or ready
        ran.append(_Cycle(held, moves, held[-1] is not None and ready, offered))
        if moves:
            held, offered = (offered, *held[:-1]), None
    return ran


def _words(ran: Sequence[_Cycle]) -> str:
    taken = sum(cycle.taken for cycle in ran)
    stalled = sum(not cycle.moves for cycle in ran)
    bubbles = sum(c.held[-1] is None for c in ran[len(ran[0].held) :])
    return (
        f"{taken} items are taken in {len(ran)} cycles; the pipeline stands still in "
        f"{stalled}, and in {bubbles} the last stage holds a bubble; none is lost."
    )


def _pictured(ran: Sequence[_Cycle], stages: Sequence[str]) -> str:
    wide = (_WIDTH - _LEFT - 8) / len(ran)
    names = ("waits", *stages, "taken")
    parts = [palette.text(4, 16, "stage, by clock cycle", class_="kw-head")]
    for row, name in enumerate(names):
        y = _TOP + row * _ROW
        parts.append(palette.text(_LEFT - 8, y + 16, name, class_="kw-row"))
    for at, cycle in enumerate(ran):
        x = _LEFT + at * wide
        if at % 3 == 0:
            label = palette.text(x + wide / 2, _TOP - 8, str(at), class_="kw-tick")
            parts.append(label)
        left = cycle.held[-1] if cycle.taken else None
        for row, item in enumerate((cycle.offered, *cycle.held, left)):
            y = _TOP + row * _ROW
            if item is None:
                parts.append(palette.box(x, y, wide - 2, _ROW - 5, class_="kw-none"))
                continue
            still = not cycle.moves and row <= len(stages)
            parts.append(
                palette.box(
                    x, y, wide - 2, _ROW - 5,
                    class_="kw-masked" if still else "kw-used",
                    style=f"--c: {palette.series(item % 4)}",
                )
            )  # fmt: skip
            parts.append(palette.text(x + wide / 2 - 1, y + 15, str(item)))
    return "".join(parts)
