"""Whole requests, kept by the runtime and turned into Python when asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from kernelwright.emulator.tracing import Recorded
from kernelwright.trace.lines import op_name
from kernelwright.trace.places import Places
from kernelwright.trace.report import Request, Space


@dataclass(frozen=True)
class RequestLog:
    """The first requests of each access, in the order in which blocks made them."""

    workers: Sequence[Recorded]
    lines: dict[int, int]
    places: Places

    def requests(
        self, line: int | None, space: Space | None, limit: int | None
    ) -> list[Request]:
        """Return those of a line and a memory, at most so many."""
        chosen: list[tuple[int, int, Recorded, Any]] = []
        for worker in self.workers:
            wanted = [
                (line is None or self.lines.get(int(site["pc"]), 0) == line)
                and (space is None or self.places.space(int(site["place"])) == space)
                for site in worker.sites
            ]
            for row in worker.log:
                if wanted[row["site"]]:
                    chosen.append((int(row["block"]), int(row["order"]), worker, row))
        chosen.sort(key=lambda item: item[:2])
        return [
            self._request(worker, row) for _, _, worker, row in islice(chosen, limit)
        ]

    def _request(self, worker: Recorded, row: Any) -> Request:
        site = worker.sites[row["site"]]
        return Request(
            line=self.lines.get(int(site["pc"]), 0),
            space=self.places.space(int(site["place"])),
            op=op_name(int(site["op"])),
            block=self.places.block_index(int(row["block"])),
            warp=int(row["warp"]),
            occurrence=int(row["occurrence"]),
            width=int(site["width"]),
            lanes=list(self._lanes(worker, row, int(site["place"]))),
            order=int(row["order"]),
        )

    def _lanes(
        self, worker: Recorded, row: Any, place: int
    ) -> Iterator[tuple[int, tuple[int, int, int], str | None, int]]:
        mask = int(row["mask"])
        for lane in range(32):
            if mask >> lane & 1:
                address = int(row["address"][lane])
                where = self.places.find(
                    place, address, worker.static_low, worker.dynamic_low
                )
                thread = self.places.thread(int(row["warp"]) * 32 + lane)
                yield lane, thread, where.buffer, where.offset
