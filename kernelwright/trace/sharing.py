"""Who loads and stores the same elements: from recorded threads to how many."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernelwright.emulator.tracing import STORE, Shared
from kernelwright.trace.memory import Buffer
from kernelwright.trace.report import Sharing


def sharing_of(
    shared: Sequence[Shared],
    regions: Sequence[tuple[int, int, bool]],
    buffers: Sequence[Buffer],
    lines: dict[int, int],
) -> tuple[Sharing, ...]:
    """Say for each parameter who touched its elements, loads before stores."""
    found = []
    for buffer in buffers:
        region = next(
            (
                number
                for number, (low, high, _) in enumerate(regions)
                if low <= buffer.low < high
            ),
            None,
        )
        if region is None:
            continue
        rows = shared[region].watched
        stores = rows["op"] == STORE
        for mine in (rows[~stores], rows[stores]):
            if mine.size:
                found.append(_sharing(buffer, mine, shared[region], lines))
    return tuple(found)


def _sharing(
    buffer: Buffer, rows: np.ndarray, shared: Shared, lines: dict[int, int]
) -> Sharing:
    places = [rows[rows["address"] == at] for at in np.unique(rows["address"])]
    stored = bool(rows["op"][0] == STORE)
    met = shared.met if stored else shared.met[:0]
    return Sharing(
        buffer=buffer.name,
        position=buffer.position,
        op="store" if stored else "load",
        elements=(buffer.high - buffer.low) // buffer.element,
        threads=len(set.intersection(*map(_threads, places))),
        blocks=len(set.intersection(*map(_blocks, places))),
        index=max(0, shared.address - buffer.low) // buffer.element if met.size else 0,
        line=lines.get(shared.pc, 0) if met.size else 0,
        index_threads=len(_threads(met)),
        index_blocks=len(_blocks(met)),
    )


def _threads(rows: np.ndarray) -> set[tuple[int, int]]:
    return set(zip(rows["block"].tolist(), rows["thread"].tolist(), strict=True))


def _blocks(rows: np.ndarray) -> set[int]:
    return set(rows["block"].tolist())
