"""Chunks that go round: each message of a recorded run, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from math import cos, pi, sin

from kernelwright.draw import palette
from kernelwright.draw.live import Explorer, Picture
from kernelwright.draw.steps import Frame, Steps
from kernelwright.errors import ArgumentError
from kernelwright.ranks import Message

_MOST_RANKS, _MOST_STEPS = 8, 32  # that can still be read in one picture
_WIDTH, _HEIGHT, _CELL = 360.0, 330.0, 13.0  # a phone's width


def message_steps(sent: Sequence[Sequence[Message]]) -> Steps:
    """Draw what each rank sent, in the order in which it did.

    Args:
        sent: of each rank its messages, as ``kw.ranks(...).sent`` has them. A cell of
            a rank is a place in its memory from which it sent.

    Raises:
        ArgumentError: no rank, or more than one picture holds.
    """
    ranks, steps = len(sent), max(map(len, sent), default=0)
    if not 1 <= ranks <= _MOST_RANKS or steps > _MOST_STEPS:
        raise ArgumentError(
            f"{ranks} ranks with up to {steps} messages; wanted 1 to {_MOST_RANKS} "
            f"ranks with at most {_MOST_STEPS}, which can be read in one picture."
        )
    places = [sorted({(m.buffer, m.offset) for m in each}) for each in sent]
    totals = [0] * ranks
    pairs = sorted({(rank, m.peer) for rank, each in enumerate(sent) for m in each})
    links = "".join(_arrow(rank, peer, ranks) for rank, peer in pairs)
    frames = [Frame(links, _overview(sent))]
    for step in range(steps):
        drawn, said = "", []
        for rank, each in enumerate(sent):
            if step < len(each):
                message = each[step]
                totals[rank] += message.bytes
                cell = places[rank].index((message.buffer, message.offset))
                drawn += _arrow(rank, message.peer, ranks) + _cell(
                    rank, cell, ranks, len(places[rank]), sends=True
                )
                said.append(f"{rank} to {message.peer}: place {cell}")
        words = f"Message {step + 1} of each rank. {', '.join(said)}."
        words += f" So far the most that a rank has sent is {max(totals):,} bytes."
        frames.append(Frame(drawn, words))
    return Steps(
        frames,
        _base([len(each) for each in places]),
        _WIDTH,
        _HEIGHT,
        "Message",
        "The cells of a rank are the places in its memory from which it sent, in order "
        "of address. Arrows are messages of this step, and the filled cell is what "
        "travels.",
        wide=False,
        narrow=True,
    )


def explore_ring(ranks: Sequence[int] = (2, 3, 4, 5)) -> Explorer:
    """Let the reader choose how many ranks, and see who sums which chunk when."""

    def draw(count: int, step: int) -> Picture:
        step = min(step, 2 * (count - 1) - 1)
        half = "added" if step < count - 1 else "a whole sum, copied"
        drawn = "".join(
            _arrow(rank, (rank + 1) % count, count)
            + _cell(rank, (rank - step) % count, count, count, sends=True)
            for rank in range(count)
        )
        share = (step + 1) / count
        words = (
            f"step {step + 1} of {2 * (count - 1)}: rank 0 sends chunk "
            f"{-step % count}, which is {half}. Each has sent {share:.3g} N so far"
        )
        picture = Steps(
            [Frame(drawn, words)], _base([count] * count), _WIDTH, _HEIGHT, "", "",
            wide=False, narrow=True,
        )  # fmt: skip
        return Picture(picture, words)

    most = 2 * (max(ranks) - 1)
    return Explorer(
        {"ranks": tuple(ranks), "step": tuple(range(most))},
        draw,
        "In each step every link carries one chunk, a share of 1/n of the tensor. "
        "After 2 (n - 1) steps all have everything.",
    )


def _overview(sent: Sequence[Sequence[Message]]) -> str:
    totals = [sum(message.bytes for message in each) for each in sent]
    least, most = min(totals), max(totals)
    each = f"a rank sends {least:,} to {most:,} bytes"
    if least == most:
        each = f"each sends {most:,} bytes"
    return f"{sum(map(len, sent))} messages of {len(sent)} ranks; {each}."


def _at(rank: int, ranks: int) -> tuple[float, float]:
    """Return a rank's centre; rank 0 is at the top, and they go clockwise."""
    angle = 2 * pi * rank / ranks - pi / 2
    return _WIDTH / 2 + 122 * cos(angle), _HEIGHT / 2 + 118 * sin(angle)


def _base(places: Sequence[int]) -> str:
    parts = []
    for rank, cells in enumerate(places):
        x, y = _at(rank, len(places))
        parts.append(palette.text(x, y - 9, f"rank {rank}"))
        parts += [_cell(rank, at, len(places), cells) for at in range(cells)]
    return "".join(parts)


def _cell(
    rank: int, place: int, ranks: int, places: int, *, sends: bool = False
) -> str:
    x, y = _at(rank, ranks)
    wide = min(_CELL, 84 / max(places, 1))
    left = x - wide * places / 2 + wide * place
    if not sends:
        seen = f"stroke: {palette.MUTED}; stroke-opacity: 1"
        return palette.box(left, y, wide, _CELL, class_="kw-none", style=seen)
    style = f"--c: {palette.series(place % 6)}"
    return palette.box(left, y, wide, _CELL, class_="kw-used", style=style)


def _arrow(rank: int, peer: int, ranks: int) -> str:
    """Draw a line from a rank to another, with a head, both a little apart."""
    (x0, y0), (x1, y1) = _at(rank, ranks), _at(peer, ranks)
    length = max(((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5, 1.0)
    dx, dy = (x1 - x0) / length, (y1 - y0) / length
    gap = min(46.0, length / 3)
    # Beside the straight line: two ranks may send to each other.
    x0, y0 = x0 + gap * dx - 6 * dy, y0 + gap * dy + 6 * dx
    x1, y1 = x1 - gap * dx - 6 * dy, y1 - gap * dy + 6 * dx
    ends = " ".join(
        f"{x1 - 9 * dx + side * 5 * dy:.1f},{y1 - 9 * dy - side * 5 * dx:.1f}"
        for side in (1, -1)
    )
    return (
        f'<line x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}" '
        f'stroke="{palette.INK}" stroke-width="1.6"/>'
        f'<polygon points="{x1:.1f},{y1:.1f} {ends}" fill="{palette.INK}"/>'
    )
