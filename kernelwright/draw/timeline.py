"""Backward and its messages on a line of time, of a run that was recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernelwright.draw import palette
from kernelwright.draw.live import Explorer, Picture
from kernelwright.draw.steps import Frame, Steps
from kernelwright.errors import ArgumentError

Event = tuple[str, str, float, float]
"""What (``gradient`` or ``all-reduce``), its name, begin and end in seconds."""

_WIDTH, _LEFT, _RIGHT = 492.0, 58.0, 484.0
_LANE, _GAP, _TOP = 26.0, 16.0, 34.0
_MOST_RANKS = 8


def explore_timeline(runs: Mapping[str, Sequence[Sequence[Event]]]) -> Explorer:
    """Let the reader choose among runs, and see what hides behind backward.

    Args:
        runs: by a name that is shown, such as the size of the buckets: of each rank
            the events, as ``solutions.parallel.DistributedDataParallel`` notes them:
            ``("backward", "", begin, end)`` once, a ``gradient`` whenever one is made
            (begin and end alike), an ``all-reduce`` from its begin to its end.

    Raises:
        ArgumentError: a run has no backward, or more ranks than can be read.
    """
    for name, ranks in runs.items():
        if not 1 <= len(ranks) <= _MOST_RANKS:
            raise ArgumentError(
                f"run {name!r} has {len(ranks)} ranks; wanted 1 to {_MOST_RANKS}, "
                "which can be read in one picture."
            )
        for rank, events in enumerate(ranks):
            if [what for what, *_ in events].count("backward") != 1:
                raise ArgumentError(
                    f"run {name!r}, rank {rank}: wanted one event "
                    '("backward", "", begin, end).'
                )

    return Explorer(
        {"buckets": tuple(runs)},
        lambda name: _pictured(runs[name]),
        "Of each rank above its backward, with a mark for each gradient, and below the "
        "all-reduces, from their begin to their end. What lies below backward costs "
        "nothing more; what hangs over is waited for.",
    )


def hidden_share(events: Sequence[Event]) -> float:
    """Return the share of the messages' time that lies within backward."""
    begin, end = _backward(events)
    spans = _joined([(a, b) for what, _, a, b in events if what == "all-reduce"])
    whole = sum(b - a for a, b in spans)
    within = sum(max(0.0, min(b, end) - max(a, begin)) for a, b in spans)
    return within / whole if whole else 0.0


def _backward(events: Sequence[Event]) -> tuple[float, float]:
    return next((a, b) for what, _, a, b in events if what == "backward")


def _joined(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Make one span of those that overlap."""
    found: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((begin, end))
    return found


def _pictured(ranks: Sequence[Sequence[Event]]) -> Picture:
    # Each rank by its own backward's begin: clocks of processes may differ.
    starts = [_backward(events)[0] for events in ranks]
    last = max(
        b - start
        for events, start in zip(ranks, starts, strict=True)
        for *_, b in events
    )
    height = _TOP + len(ranks) * (2 * _LANE + _GAP) + 26
    parts = []
    for rank, (events, start) in enumerate(zip(ranks, starts, strict=True)):
        top = _TOP + rank * (2 * _LANE + _GAP)
        left = "text-anchor: start"
        label = palette.text(4, top + _LANE + 4, f"rank {rank}", style=left)
        parts.append(label)
        parts.append(_lanes(events, start, last, top))
    parts.append(_axis(last, height - 20))
    frames = [Frame("".join(parts), "")]
    drawn = Steps(frames, "", _WIDTH, height, "", "", wide=False, narrow=True)
    return Picture(drawn, _words(ranks))


def _lanes(events: Sequence[Event], start: float, last: float, top: float) -> str:
    def at(moment: float) -> float:
        return _LEFT + (moment - start) / last * (_RIGHT - _LEFT)

    begin, end = _backward(events)
    high = _LANE - 5
    parts = [
        palette.box(
            at(begin), top, at(end) - at(begin), high,
            class_="kw-used", style=f"--c: {palette.series(0)}",
        )
    ]  # fmt: skip
    ticks = "".join(
        f"M{at(a):.1f} {top:g}v{high:g}" for what, _, a, _ in events if what[0] == "g"
    )
    parts.append(f'<path d="{ticks}" stroke="{palette.INK}" stroke-width="1"/>')
    messages = [e for e in events if e[0] == "all-reduce"]
    for number, (_, name, a, b) in enumerate(messages):
        wide = max(at(b) - at(a), 1.5)
        colour = f"--c: {palette.series(1 + number % 2)}"
        box = palette.box(
            at(a), top + _LANE, wide, high, class_="kw-used", style=colour
        )
        parts.append(f"<g><title>{name}: {(b - a) * 1e3:.2f} ms</title>{box}</g>")
    return "".join(parts)


def _axis(last: float, y: float) -> str:
    middle = (_LEFT + _RIGHT) / 2
    return (
        f'<line x1="{_LEFT:g}" x2="{_RIGHT:g}" y1="{y:g}" y2="{y:g}" '
        f'stroke="{palette.LINE}"/>'
        + palette.text(_LEFT, y + 16, "0")
        + palette.text(middle, y + 16, "ms since backward began",
                       style="text-anchor: middle")
        + palette.text(_RIGHT, y + 16, f"{last * 1e3:.1f}", style="text-anchor: end")
    )  # fmt: skip


def _words(ranks: Sequence[Sequence[Event]]) -> str:
    messages = sum(what == "all-reduce" for what, *_ in ranks[0])
    shares = [hidden_share(events) for events in ranks]
    over = [
        max((b for what, _, _, b in events if what == "all-reduce"), default=0.0)
        - _backward(events)[1]
        for events in ranks
    ]
    said = f"{messages} message{'s' * (messages != 1)} a rank, "
    said += f"{sum(shares) / len(shares):.0%} of their time behind backward"
    return f"{said}; the last one ends {max(0.0, *over) * 1e3:.1f} ms after it."
