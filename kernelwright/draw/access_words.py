"""What an access map says: who touches what, how far apart, at what cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kernelwright.draw.banks import ideal_wavefronts, wavefronts
from kernelwright.draw.sectors import ideal_sectors, touched_sectors

_DOES = {
    "load": "loads",
    "store": "stores",
    "atomic": "updates",
    "async copy": "copies",
}

# The index of the block or the program, z first, and the warp's number.
Group = tuple[tuple[int, int, int], int]


def group_of(request: Any) -> Group:
    """Return who made a request; sorted, x changes fastest."""
    return tuple(reversed(request.block)), request.warp


@dataclass(frozen=True)
class Actors:
    """Who touches memory, in a trace's own terms.

    Args:
        noun: ``warp`` or ``program``.
        group: what a launch counts.
        grid: of the launch, where the index says which one it is.
    """

    noun: str
    group: str
    grid: tuple[int, int, int] | None = None

    def numbers(self, requests: Sequence[Any]) -> dict[Group, int]:
        """Number all who made requests: programs by their index, warps in order."""
        groups = sorted({group_of(request) for request in requests})
        if self.grid is None:
            return {group: at for at, group in enumerate(groups)}
        across, down, _ = self.grid
        return {((z, y, x), w): x + across * (y + down * z) for (z, y, x), w in groups}

    def named(self, request: Any) -> str:
        """Name who made a request."""
        if self.grid is None:
            return f"block {_index(request.block)}, warp {request.warp}"
        if self.grid[1:] == (1, 1):
            return f"program {request.block[0]}"
        return f"program {_index(request.block)}"

    @staticmethod
    def counted(number: int, thing: str) -> str:
        """Say how many there are."""
        return _counted(number, thing)


def actors_of(report: Any) -> Actors:
    """Return who acts in a report: a Triton kernel's has launches of programs."""
    launches = getattr(report, "launches", None)
    if launches is None:
        return Actors("warp", "block")
    grid = max((made.grid for made in launches), default=(1, 1, 1))
    return Actors("program", "program", grid)


@dataclass(frozen=True)
class Step:
    """One instruction, as everybody carries it out.

    Args:
        line, op: which one.
        turn: how often somebody had done it before, from 0.
        requests: one a warp or a program.
    """

    line: int
    op: str
    turn: int
    requests: Sequence[Any]


def elements_of(request: Any, size: int) -> list[int]:
    """Return the elements that a request touches, those before the buffer left out."""
    each = range(max(1, request.width // size))
    first = (lane[3] // size for lane in request.lanes if lane[3] >= 0)
    return [at + more for at in first for more in each]


def step_words(name: str, step: Step, size: int, number: str, actors: Actors) -> str:
    """Say what everybody does in one step."""
    first = step.requests[0]
    return (
        f"step {number}, line {step.line} {_DOES[step.op]}: "
        f"{_counted(len(step.requests), actors.noun)}; the first "
        f"({actors.named(first)}) {_reach(name, [first], size)}, "
        f"{_spacing(step.requests, size)}; {_cost(step.requests, actors)}"
        f"{_left_out(step.requests)}"
    )


def own_words(name: str, own: Sequence[Any], size: int, actors: Actors) -> str:
    """Say what one warp or program does in all its steps."""
    does = " and ".join(dict.fromkeys(_DOES[r.op] for r in own))
    return (
        f"{actors.named(own[0])} {does} {_reach(name, own, size)}; "
        f"{_cost(own, actors)}{_left_out(own)}"
    )


def caption_of(
    report: Any,
    name: str,
    kept: Sequence[Any],
    found: Sequence[Any],
    steps: Sequence[Step],
    touched: Counter[int],
    count: int,
    size: int,
    actors: Actors,
) -> str:
    """State the figure's conclusion: how often each element, and at what cost."""
    total = _requests(report, name, {(r.line, r.op) for r in kept})
    verdict = _verdict(touched, count, {r.op for r in found})
    if total > len(kept):
        request = "requests" if actors.noun == "warp" else "accesses"
        verdict = f"The first {len(kept):,} of {total:,} {request} are drawn."
    left_out = _left_out(found, "; dashed", "; red").removeprefix("; ")
    left_out = f" {left_out[0].upper()}{left_out[1:]}." if left_out else ""
    return f"{verdict} {_conclusions(steps, size, actors)}{left_out}"


def _reach(name: str, requests: Sequence[Any], size: int) -> str:
    elements = [e for request in requests for e in elements_of(request, size)]
    if not elements:
        return "nothing" if requests[0].lanes == [] else f"before {name}"
    ends = f"{name}[{min(elements)}]"
    if len(set(elements)) > 1:
        ends += f" to {name}[{max(elements)}]"
    return ends


def _left_out(requests: Sequence[Any], off: str = "", red: str = "") -> str:
    """Say how many lanes a mask turned off, and how many were outside."""
    masked = sum(len(getattr(r, "off", ())) for r in requests)
    outside = sum(len(getattr(r, "outside", ())) for r in requests)
    words = f"; {_counted(masked, 'lane')} masked off" if masked else ""
    words += " (dashed)" if masked and off else ""
    if outside:
        words += f"; {_counted(outside, 'lane')} outside"
        words += " (red)" if red else ""
    return words


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


def _cost(requests: Sequence[Any], actors: Actors) -> str:
    if requests[0].space == "shared":
        spent = sum(len(wavefronts(r)) for r in requests) / len(requests)
        best = sum(ideal_wavefronts(r) for r in requests) / len(requests)
        thing = "wavefront"
    else:
        spent = sum(len(touched_sectors(r)) for r in requests) / len(requests)
        best = sum(ideal_sectors(r) for r in requests) / len(requests)
        thing = "sector"
    each = "per request" if actors.noun == "warp" else "per access"
    return f"{spent:.3g} {thing}{'' if spent == 1 else 's'} {each}, {best:.3g} at best"


def _conclusions(steps: Sequence[Step], size: int, actors: Actors) -> str:
    """Sum each line up; a figure of many lines keeps to the first four."""
    by_line: dict[tuple[int, str], list[Any]] = {}
    for step in steps:
        by_line.setdefault((step.line, step.op), []).extend(step.requests)
    said = [
        f"line {line} {_DOES[op]} with {_spacing(made, size)}: {_cost(made, actors)}"
        for (line, op), made in list(by_line.items())[:4]
    ]
    text = "; ".join(said)
    return f"{text[0].upper()}{text[1:]}."


def _verdict(touched: Counter[int], count: int, ops: set[str]) -> str:
    done = {"load": "loaded", "store": "stored"}.get(ops.pop(), "touched")
    if ops:
        done = "touched"
    if not touched:
        return f"None of {count:,} elements is {done}."
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


def _times(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number, f"{number} times")


def _counted(number: int, thing: str) -> str:
    if number != 1:
        thing += "es" if thing.endswith("s") else "s"
    return f"{number} {thing}"


def _index(index: tuple[int, int, int]) -> str:
    return ", ".join(map(str, index))
