"""From recorded sites to accesses by source line."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from kernelwright.emulator.tracing import (
    ASYNC_LOAD,
    ASYNC_STORE,
    ATOMIC,
    STORE,
    Recorded,
)
from kernelwright.trace.names import is_rolled
from kernelwright.trace.places import Places
from kernelwright.trace.report import LineAccess, Op, Space

_COUNTED = (
    "requests",
    "lanes",
    "sectors",
    "ideal_sectors",
    "wavefronts",
    "ideal_wavefronts",
    "repeats",
)
_ORDER = {"global": 0, "shared": 1, "constant": 2, "local": 3}
_OPS: dict[int, Op] = {
    STORE: "store",
    ATOMIC: "atomic",
    ASYNC_LOAD: "async copy",
    ASYNC_STORE: "async copy",
}


def op_name(op: int) -> Op:
    """Return a recorded operation's name."""
    return _OPS.get(op, "load")


def line_accesses(
    workers: Sequence[Recorded],
    lines: dict[int, int],
    places: Places,
    source: Sequence[str],
) -> tuple[LineAccess, ...]:
    """Add up what all workers recorded for each line, memory, operation and width."""
    Key = tuple[int, Space, Op, int, str | None]
    sums: dict[Key, dict[str, int]] = defaultdict(lambda: dict.fromkeys(_COUNTED, 0))
    uneven: set[Key] = set()
    for worker in workers:
        for site in worker.sites:
            space = places.space(int(site["place"]))
            where = places.find(
                int(site["place"]),
                int(site["sample"]),
                worker.static_low,
                worker.dynamic_low,
            )
            key: Key = (
                lines.get(int(site["pc"]), 0),
                space,
                op_name(int(site["op"])),
                int(site["width"]),
                where.buffer,
            )
            for name in _COUNTED:
                sums[key][name] += int(site[name])
            if site["uneven"] and not is_rolled(source, key[0]):
                uneven.add(key)
    merging = _merging(sums)
    found = [
        _access(key, counted, key in merging, key in uneven, source)
        for key, counted in sums.items()
        if counted["requests"]
    ]
    found.sort(key=lambda a: (a.line, _ORDER[a.space], a.op, a.buffer or "", a.width))
    return tuple(found)


def _merging(
    sums: dict[tuple[int, Space, Op, int, str | None], dict[str, int]],
) -> set[tuple[int, Space, Op, int, str | None]]:
    """Say which accesses nvcc may join: narrow loads of shared memory."""
    return {
        key for key in sums if key[1] == "shared" and key[2] == "load" and key[3] < 16
    }


def _access(
    key: tuple[int, Space, Op, int, str | None],
    counted: dict[str, int],
    merges: bool,
    uneven: bool,
    source: Sequence[str],
) -> LineAccess:
    line, space, op, width, buffer = key
    requests = counted["requests"]
    figures = {name: counted[name] / requests for name in _COUNTED}
    text = _sentence(space, op, width, buffer, figures)
    repeats = counted["repeats"]
    if repeats:
        text += f"; {repeats:,} of {requests:,} requests read again what the warp had"
        text += " just read, which nvcc may keep"
    if uneven:
        text += "; lanes leave this loop in different rounds, of which nvcc may run"
        text += " several at a time"
    return LineAccess(
        line=line,
        space=space,
        op=op,
        width=width,
        requests=requests,
        sectors=counted["sectors"],
        sectors_per_request=figures["sectors"],
        ideal_sectors_per_request=figures["ideal_sectors"],
        wavefronts=counted["wavefronts"],
        wavefronts_per_request=figures["wavefronts"],
        ideal_wavefronts_per_request=figures["ideal_wavefronts"],
        lanes=figures["lanes"],
        bytes=counted["lanes"] * width,
        source=source[line - 1] if 0 < line <= len(source) else "",
        merges=merges,
        text=text,
        buffer=buffer,
        repeats=repeats,
        uneven=uneven,
    )


def _sentence(
    space: Space, op: Op, width: int, buffer: str | None, figures: dict[str, float]
) -> str:
    verb = {"load": "reads", "store": "writes", "atomic": "updates"}.get(op, "copies")
    what = f"{verb} {width} byte{'s' * (width != 1)} a lane of {space} memory"
    if buffer:
        what += f" ({buffer})"
    if space == "global":
        return (
            f"{what}: {figures['sectors']:.3g} sectors per request, "
            f"ideal {figures['ideal_sectors']:.3g}"
        )
    if space == "shared":
        return (
            f"{what}: {figures['wavefronts']:.3g} wavefronts per request, "
            f"ideal {figures['ideal_wavefronts']:.3g}"
        )
    return what
