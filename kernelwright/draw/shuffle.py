"""Shuffle steps: the values of a warp's 32 lanes, and which lane gets whose."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest

from kernelwright.cuda import Launcher
from kernelwright.draw import palette
from kernelwright.draw.exchanges import (
    Exchange,
    Shuffle,
    make_shuffles,
    record_shuffles,
)
from kernelwright.draw.steps import Frame, Steps, nothing_to_draw

_CELL, _BOX, _HEIGHT, _STEP, _LEFT, _TOP = 25, 23, 22, 66, 92, 48
_MOST_STEPS = 12

Combine = Callable[[float, float], float]
# What a lane may do with its own value and the one that it got.
_OPERATIONS: dict[str, Combine] = {
    "sum": operator.add,
    "maximum": max,
    "minimum": min,
    "product": operator.mul,
}


@dataclass(frozen=True)
class Row:
    """What the lanes hold between two shuffles.

    Args:
        values: by lane.
        holds: by lane, the lanes whose first values are in it.
    """

    values: dict[int, float]
    holds: dict[int, frozenset[int]]


@dataclass(frozen=True)
class Round:
    """Shuffles that pass the same values on; a kernel may begin again with others.

    Args:
        shuffles: one after another.
        rows: what the lanes hold before the first and after each.
        first: how many shuffles and rows of earlier rounds come before.
    """

    shuffles: Sequence[Shuffle]
    rows: Sequence[Row]
    first: tuple[int, int]

    @property
    def goals(self) -> list[int]:
        """The lanes that hold something of the most lanes in the end."""
        held = self.rows[-1].holds
        most = max(map(len, held.values()), default=0)
        return [lane for lane, lanes in held.items() if len(lanes) == most] or [0]

    def needed(self) -> list[set[int]]:
        """Return, row by row, the lanes whose values end in the goals."""
        found = [set(self.goals)]
        for shuffle in reversed(self.shuffles):
            lanes, after = shuffle.lanes, found[0]
            sources = {lanes[lane].source for lane in after if lane in lanes}
            found.insert(0, after | sources)
        return found


def shuffle_steps(
    what: Launcher | Sequence[float],
    *arguments: object,
    block: int = 0,
    warp: int = 0,
    offsets: Sequence[int] = (16, 8, 4, 2, 1),
    kind: str = "down",
    combine: Combine = operator.add,
) -> Steps:
    """Draw how shuffles carry the values of a warp from lane to lane.

    ``shuffle_steps(warp_sum[1, 32], x, out)`` draws the shuffles of your own kernel,
    run on the emulator; ``shuffle_steps(range(32))`` a reduction of given values.

    Args:
        what: ``kernel[grid, block]``, or the values of up to 32 lanes.
        arguments: as for the launch; tensors are copied.
        block: number of the block whose warp is drawn.
        warp: number of the warp in its block.
        offsets: of the shuffles, where values are given.
        kind: ``idx``, ``up``, ``down`` or ``xor``, where values are given.
        combine: what a lane makes of both values, where values are given.

    Raises:
        ArgumentError: a block, warp or kind that there is not.
        KernelFault: what the kernel did wrong.
    """
    if isinstance(what, Launcher):
        made = record_shuffles(what, arguments, block=block, warp=warp)
        name = f"{what.kernel.name}, block {block}, warp {warp}"
    else:
        made = make_shuffles(list(what), offsets, kind, combine)
        name = "A warp"
    if not made:
        return nothing_to_draw("the shuffles of this warp", "")
    total, made = len(made), made[:_MOST_STEPS]
    operation = _operation(made)
    rounds = _rounds(made, operation)
    frames = [Frame("", _overview(made, total))]
    for each in rounds:
        frames += _frames(each)
    row = sum(len(each.rows) for each in rounds) - 1
    return Steps(
        frames,
        _base(rounds),
        _LEFT + 32 * _CELL + 6,
        _y(row) + _HEIGHT + 8,
        "Shuffle",
        f"{name}: {_conclusion(rounds, operation)}.",
        overview=True,
    )


def _operation(made: Sequence[Shuffle]) -> str | None:
    """Find what explains most of the values that the next shuffle was given."""
    counts = {
        name: sum(
            _alike(does(e.gave, e.got), after.lanes[lane].gave)
            for before, after in pairwise(made)
            for lane, e in before.lanes.items()
            if lane in after.lanes
        )
        for name, does in _OPERATIONS.items()
    }
    best = max(counts, key=lambda name: counts[name])
    return best if counts[best] else None


def _rounds(made: Sequence[Shuffle], operation: str | None) -> list[Round]:
    """Cut where most lanes come with a value that the last shuffle did not make."""
    does = _OPERATIONS[operation or "sum"]
    nobody = (frozenset[int](), frozenset[int]())
    groups: list[list[Shuffle]] = [[made[0]]]
    for before, after in pairwise(made):
        both = before.lanes.keys() & after.lanes.keys()
        strange = sum(
            _holds(before.lanes[lane], after.lanes[lane].gave, does, nobody) is None
            for lane in both
        )
        if 2 * strange > len(both):
            groups.append([])
        groups[-1].append(after)
    rounds, shuffles, rows = [], 0, 0
    for group in groups:
        each = Round(group, _rows(group, operation), (shuffles, rows))
        shuffles, rows = shuffles + len(group), rows + len(each.rows)
        rounds.append(each)
    return rounds


def _rows(made: Sequence[Shuffle], operation: str | None) -> list[Row]:
    """Follow each lane's value, and whose values are in it, through the shuffles."""
    does = _OPERATIONS[operation or "sum"]
    first = {lane: e.gave for lane, e in made[0].lanes.items()}
    rows = [Row(first, {lane: frozenset({lane}) for lane in first})]
    for shuffle, following in zip_longest(made, made[1:]):
        values, holds = {}, {}
        for lane, e in shuffle.lanes.items():
            if following is None:
                # Nobody saw what came of the last one; it is what came of the others.
                now = does(e.gave, e.got) if operation else e.got
            elif lane in following.lanes:
                now = following.lanes[lane].gave
            else:
                continue
            before = rows[-1].holds
            parts = [before.get(x, frozenset({x})) for x in (lane, e.source)]
            held = _holds(e, now, does, (parts[0], parts[1]))
            values[lane] = now
            holds[lane] = frozenset({lane}) if held is None else held
        rows.append(Row(values, holds))
    return rows


def _holds(
    exchange: Exchange,
    now: float,
    does: Combine,
    parts: tuple[frozenset[int], frozenset[int]],
) -> frozenset[int] | None:
    """Return whose values a lane's new value is made of, or None if of none of these.

    ``parts`` says whose values are in the lane's own one, and in the one that it got.
    """
    if _alike(now, does(exchange.gave, exchange.got)):
        return parts[0] | parts[1]
    if _alike(now, exchange.gave):
        return parts[0]
    return parts[1] if _alike(now, exchange.got) else None


def _alike(a: float, b: float) -> bool:
    return (a != a and b != b) or math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-12)


def _frames(each: Round) -> Iterator[Frame]:
    """Draw each shuffle: its arrows, and what the lanes hold after it."""
    needed = each.needed()
    done, above = each.first
    for number, shuffle in enumerate(each.shuffles):
        drawn = ""
        if above and not number:
            drawn = _cells(above, each.rows[0], needed[0])
        drawn += _arrows(above + number, shuffle, needed[number + 1])
        drawn += _cells(above + number + 1, each.rows[number + 1], needed[number + 1])
        words = _words(shuffle, each.rows[number + 1], each.goals[0])
        yield Frame(drawn, f"shuffle {done + number + 1}{words}")


def _y(row: int) -> int:
    return _TOP + row * _STEP


def _middle(lane: int) -> float:
    return _LEFT + lane * _CELL + _BOX / 2


def _cells(number: int, row: Row, needed: set[int]) -> str:
    parts = []
    longest = max((len(_short(value)) for value in row.values.values()), default=0)
    size = {} if longest < 3 else {"style": f"font-size: {15 - longest - 1}px"}
    for lane, value in row.values.items():
        x, y = _LEFT + lane * _CELL, _y(number)
        if lane in needed:
            kind = {"class_": "kw-used", "style": f"--c: {palette.series(0)}"}
        else:
            kind = {"class_": "kw-none"}
        parts.append(palette.box(x, y, _BOX, _HEIGHT, **kind))
        parts.append(palette.text(_middle(lane), y + 15, _short(value), **size))
    return "".join(parts)


def _arrows(number: int, shuffle: Shuffle, needed: set[int]) -> str:
    """Draw whence each lane gets its value, those that matter on top."""
    paths: dict[bool, list[str]] = {False: [], True: []}
    heads = []
    top, bottom = _y(number) + _HEIGHT + 1, _y(number + 1) - 2
    for lane, exchange in shuffle.lanes.items():
        if exchange.source == lane:
            continue
        x = _middle(lane)
        paths[lane in needed].append(
            f"M{_middle(exchange.source):g} {top}L{x:g} {bottom}"
        )
        if lane in needed:
            heads.append(f"M{x - 3:g} {bottom - 4}h6l-3 5z")
    return (
        f'<path class="kw-none" d="{"".join(paths[False])}"/>'
        f'<path fill="none" stroke="{palette.SERIES[1]}" stroke-width="1.6" '
        f'd="{"".join(paths[True])}"/>'
        f'<path fill="{palette.SERIES[1]}" d="{"".join(heads)}"/>'
    )


def _base(rounds: Sequence[Round]) -> str:
    head = "values of lanes 0 to 31; blue ones end in the result"
    parts = [palette.text(_LEFT, 18, head, class_="kw-head")]
    for lane in range(0, 32, 4):
        parts.append(palette.text(_middle(lane), 40, str(lane), class_="kw-tick"))
    for each in rounds:
        done, above = each.first
        said = "new values" if above else "before"
        parts.append(palette.text(_LEFT - 8, _y(above) + 16, said, class_="kw-row"))
        for number, shuffle in enumerate(each.shuffles, 1):
            y = _y(above + number)
            by = "" if shuffle.by is None else f" {shuffle.by}"
            label = f"{shuffle.kind}{by}"
            parts.append(palette.text(_LEFT - 8, y - 18, label, class_="kw-row"))
            label = f"after {done + number}"
            parts.append(palette.text(_LEFT - 8, y + 16, label, class_="kw-row"))
    return "".join(parts) + _cells(0, rounds[0].rows[0], rounds[0].needed()[0])


def _overview(made: Sequence[Shuffle], total: int) -> str:
    lanes = max(len(shuffle.lanes) for shuffle in made)
    shown = "" if total == len(made) else f"the first {len(made)} of "
    return f"{shown}{_counted(total, 'shuffle')} among {_counted(lanes, 'lane')}"


def _words(shuffle: Shuffle, after: Row, goal: int) -> str:
    where = f", line {shuffle.line}" if shuffle.line else ""
    by = "" if shuffle.by is None else f" by {shuffle.by}"
    lane = goal if goal in shuffle.lanes else next(iter(shuffle.lanes))
    exchange = shuffle.lanes[lane]
    said = f"{where}: {shuffle.name}{by}; lane {lane} gets "
    if exchange.source == lane:
        said += f"its own {_plain(exchange.gave)}"
    else:
        said += f"{_plain(exchange.got)} from lane {exchange.source}"
    if lane in after.values:
        said += f" and then holds {_plain(after.values[lane])}"
        said += f", made of {_counted(len(after.holds[lane]), 'lane')}"
    return said


def _conclusion(rounds: Sequence[Round], operation: str | None) -> str:
    return "; then, with new values, ".join(_result(r, operation) for r in rounds)


def _result(each: Round, operation: str | None) -> str:
    last, goals = each.rows[-1], each.goals
    held = last.holds.get(goals[0], frozenset())
    everyone = len(goals) == len(last.values) > 1
    whom = "every lane" if everyone else f"lane {goals[0]}"
    what = f"the {operation}" if operation else "something"
    said = (
        f"after {_counted(len(each.shuffles), 'shuffle')} {whom} holds {what} of "
        f"{_counted(len(held), 'lane')}"
    )
    missing = sorted(set(each.shuffles[0].lanes) - held)
    if not missing or everyone:
        return said
    listed = ", ".join(map(str, missing[:6])) + (", …" if len(missing) > 6 else "")
    return f"{said}, and what lanes {listed} had never reaches it"


def _plain(value: float) -> str:
    return f"{value:.6g}"


def _short(value: float) -> str:
    """Spell a value in a cell's few characters."""
    for digits in (4, 3, 2, 1):
        text = f"{value:.{digits}g}".replace("e+0", "e").replace("e-0", "e-")
        if len(text) <= 4:
            return text
    return text.replace("e+", "e")


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
