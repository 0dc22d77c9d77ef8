"""The fragment map: which lane of a warp holds which element of A, B and C."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kernelwright.draw import palette
from kernelwright.draw.steps import Frame, Steps
from kernelwright.errors import ArgumentError

LANES = 32
_CELL, _SIDE, _LEFT, _TOP, _GAP = 26, 24, 40, 40, 40


@dataclass(frozen=True)
class Part:
    """One of the three matrices of a product, as a warp holds it.

    Args:
        name: ``A``, ``B`` or ``C``.
        rows: of the matrix.
        columns: of the matrix.
        holds: for each lane the elements in its registers, as row * columns + column.
        each: how many elements one register holds.
        left: where it is drawn.
        top: where it is drawn.
    """

    name: str
    rows: int
    columns: int
    holds: Sequence[Sequence[int]]
    each: int
    left: int
    top: int

    def corner(self, element: int) -> tuple[int, int]:
        """Return where an element's cell is drawn."""
        row, column = divmod(element, self.columns)
        return self.left + column * _CELL, self.top + row * _CELL

    def places(self, lane: int) -> str:
        """Name the elements of a lane, register by register."""
        registers = []
        for first in range(0, len(self.holds[lane]), self.each):
            found = self.holds[lane][first : first + self.each]
            row, column = divmod(found[0], self.columns)
            last = divmod(found[-1], self.columns)
            if len(found) == 1:
                registers.append(f"({row}, {column})")
            elif last[0] == row:
                registers.append(f"({row}, {column}-{last[1]})")
            else:
                registers.append(f"({row}-{last[0]}, {column})")
        return " ".join(registers)


def fragment_map(
    a: Any,
    b: Any,
    c: Any,
    *,
    named: Any = None,
    shape: tuple[int, int, int] = (16, 8, 16),
) -> Steps:
    """Draw who holds what in a warp's product C = A B, lane after lane.

    A cell bears the number of the lane that holds the element. The slider chooses a
    lane: the elements in its registers are filled, one colour a register.

    Args:
        a: for each of 32 lanes, the elements of A (m x k) that it holds, numbered
            along the rows: a tensor or nested lists, (32, m * k / 32). Two neighbours
            share a register.
        b: the same of B (k x n).
        c: the same of C (m x n), one element a register.
        named: the report of the traced kernel, whose ``ldmatrix`` lanes name rows of
            A and B: these are outlined. The buffers hold the two matrices, by rows.
        shape: m, n and k.

    Raises:
        ArgumentError: an element that a matrix has not, or one that nobody holds.
    """
    m, n, k = shape
    # C stands beside A, whose rows it shares, and above B, whose columns it shares.
    right = _LEFT + k * _CELL + _GAP
    below = _TOP + m * _CELL + _GAP
    parts = (
        Part("A", m, k, _held(a), 2, _LEFT, _TOP),
        Part("B", k, n, _held(b), 2, right, below),
        Part("C", m, n, _held(c), 1, right, _TOP),
    )
    for part in parts:
        _check(part)
    rows = _rows_named(named, parts[:2]) if named is not None else {}
    frames = [Frame("", "all lanes: every element is held once")]
    frames += [
        Frame(_drawn(lane, parts, rows), _said(lane, parts, rows))
        for lane in range(LANES)
    ]
    outlined = " A red frame is the row that the lane named to ldmatrix." * bool(rows)
    return Steps(
        frames,
        "".join(_base(part) for part in parts),
        right + n * _CELL + 6,
        below + k * _CELL + 6,
        "Lane",
        "Lane 4 g + t holds neighbours 2t and 2t + 1 of rows g and g + 8 of A and C, "
        f"and of column g of B.{outlined}",
    )


def _held(given: Any) -> list[list[int]]:
    return [[int(element) for element in lane] for lane in given]


def _check(part: Part) -> None:
    held = sorted(element for lane in part.holds for element in lane)
    if len(part.holds) != LANES or held != list(range(part.rows * part.columns)):
        raise ArgumentError(
            f"{part.name} is {part.rows} x {part.columns}, and the {len(part.holds)} "
            f"lanes hold {len(held)} elements, {len(set(held))} different ones from "
            f"{held[0] if held else '-'} to {held[-1] if held else '-'}; wanted each "
            f"of 0 to {part.rows * part.columns - 1} once."
        )


def _rows_named(
    report: Any, parts: Sequence[Part]
) -> dict[int, list[tuple[Part, int]]]:
    """Return for each lane the first elements of the rows that it named."""
    found: dict[int, list[tuple[Part, int]]] = {}
    seen: list[str] = []
    for request in report.accesses(space="shared"):
        if request.op != "load" or request.width != 16:
            continue
        buffer = request.lanes[0][2]
        if buffer not in seen:
            seen.append(buffer)
        if seen.index(buffer) < len(parts):
            part = parts[seen.index(buffer)]
            for lane, _, _, byte in request.lanes:
                found.setdefault(lane, []).append((part, byte // 2))
    return found


def _base(part: Part) -> str:
    """Draw a matrix: its name, its indices, and a lane's number in each cell."""
    owner = {e: lane for lane, held in enumerate(part.holds) for e in held}
    title = f"{part.name}, {part.rows} x {part.columns}"
    pieces = [palette.text(part.left, part.top - 20, title, class_="kw-head")]
    for row in range(part.rows):
        y = part.top + row * _CELL + 17
        pieces.append(palette.text(part.left - 6, y, str(row), class_="kw-row"))
    for column in range(part.columns):
        x = part.left + column * _CELL + _SIDE / 2
        pieces.append(palette.text(x, part.top - 5, str(column), class_="kw-tick"))
    squares = "".join(
        "M{} {}h{s}v{s}h-{s}z".format(*part.corner(element), s=_SIDE)
        for element in owner
    )
    pieces.append(f'<path class="kw-none" d="{squares}"/>')
    for element, lane in owner.items():
        x, y = part.corner(element)
        pieces.append(palette.text(x + _SIDE / 2, y + 17, str(lane)))
    return "".join(pieces)


def _drawn(
    lane: int, parts: Sequence[Part], rows: dict[int, list[tuple[Part, int]]]
) -> str:
    """Fill what a lane holds, one colour a register, and frame what it named."""
    pieces = []
    for part in parts:
        for at, element in enumerate(part.holds[lane]):
            x, y = part.corner(element)
            style = f"--c: {palette.series(at // part.each)}"
            pieces.append(
                palette.box(x, y, _SIDE, _SIDE, class_="kw-used", style=style)
            )
    for part, element in rows.get(lane, []):
        x, y = part.corner(element)
        pieces.append(
            f'<rect x="{x - 1}" y="{y - 1}" width="{8 * _CELL}" height="{_CELL}" '
            f'fill="none" stroke="{palette.BAD}" stroke-width="2.5"/>'
        )
    return "".join(pieces)


def _said(
    lane: int, parts: Sequence[Part], rows: dict[int, list[tuple[Part, int]]]
) -> str:
    held = "; ".join(f"{part.name} {part.places(lane)}" for part in parts)
    named = [
        f"row {element // part.columns} of {part.name} from column "
        f"{element % part.columns}"
        for part, element in rows.get(lane, [])
    ]
    said = f"lane {lane} = 4 * {lane // 4} + {lane % 4} holds {held}"
    return f"{said}; it named {' and '.join(named)}" if named else said


def accumulator_map() -> Steps:
    """Draw that two accumulators of scores are, lane by lane, one operand of weights.

    On the left the scores of 16 queries with 16 keys, as two ``mma.sync`` leave them;
    on the right the operand A of the product with values. A cell bears the number of
    the lane that holds the element. The slider chooses a lane: what becomes one
    register of the operand has one colour.
    """
    holds = [
        [
            (lane // 4 + 8 * (e % 2)) * 16 + 8 * (e // 2) + lane % 4 * 2 + h
            for e in range(4)
            for h in range(2)
        ]
        for lane in range(LANES)
    ]
    right = _LEFT + 16 * _CELL + 2 * _GAP
    parts = (
        Part("scores, two accumulators", 16, 16, holds, 2, _LEFT, _TOP),
        Part("weights, operand A", 16, 16, holds, 2, right, _TOP),
    )
    middle = _LEFT + 8 * _CELL - 1
    cut = (
        f'<path d="M{middle} {_TOP - 4}v{16 * _CELL + 6}" fill="none" '
        f'stroke="{palette.INK}" stroke-width="2"/>'
    )
    frames = [Frame("", "all lanes: the two layouts are the same")]
    for lane in range(LANES):
        g, t = divmod(lane, 4)
        frames.append(
            Frame(
                _drawn(lane, parts, {}),
                f"lane {lane}: scores of rows {g} and {g + 8}, keys {2 * t} and "
                f"{2 * t + 1} of either accumulator; packed in pairs they are a[0] to "
                "a[3]",
            )
        )
    return Steps(
        frames,
        "".join(_base(part) for part in parts) + cut,
        right + 16 * _CELL + 6,
        _TOP + 16 * _CELL + 6,
        "Lane",
        "What a lane holds after the first product is what it must hold before the "
        "second: no number changes its lane.",
    )
