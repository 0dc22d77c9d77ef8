"""What puts two accesses that race in order, judged from the whole launch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kernelwright.emulator.source import mask
from kernelwright.emulator.tracing import RACE, RawTrace, Recorded
from kernelwright.trace.lines import op_name
from kernelwright.trace.places import Places

DID = {"load": "reads", "store": "writes", "atomic": "updates", "async copy": "copies"}

_SYNC = re.compile(r"\b__sync(?:threads\w*|warp)\s*\(")
# Behind these it is not sure that a barrier further down is reached.
_LEAVES = re.compile(r"\b(?:break|continue|return|goto)\b|\};")
# Of a race's ``narrow``: the atomic that looked has no fence behind it.
_NONE_BEHIND = 2
_AT_ONCE = (
    "lanes of one warp do so at the same moment, which no barrier can part: the index "
    "gives them one place"
)


@dataclass(frozen=True)
class Races:
    """What a launch tells of all its races.

    Args:
        source: the text's lines.
        loaded: line and buffer of every load.
        read: buffers of which a read is in a race.
        across: whether any race between threads of one block is one between warps.
    """

    source: Sequence[str]
    loaded: frozenset[tuple[int, str | None]]
    read: frozenset[str | None]
    across: bool

    def within_a_block(
        self, row: Any, first: int, line: int, buffer: str | None, space: str,
        *, at_once: bool,
    ) -> str:  # fmt: skip
        """Say how accesses of a block's threads, on two lines, can be put in order.

        ``at_once`` is whether lanes of one warp wrote one address by one instruction.
        """
        # A barrier of one warp is no cure where others wait for more.
        one_warp = not self.across
        barrier = "__syncwarp()" if one_warp else "__syncthreads()"
        other = " (a __syncthreads() between them would do too)" if one_warp else ""
        again = (
            f"where a loop comes to this line again, put a {barrier} between its "
            f"rounds{other}"
        )
        if self._stores_alone(row, first, line, buffer):
            why = f"; {_AT_ONCE}. Let" if at_once and first == line else ": let"
            index = (
                f"both store to the same element, so check the index{why} it give each "
                "thread an element of its own, or let one thread alone store, by an if"
            )
            if at_once:
                return index
            return f"{index}; {again}" if space == "shared" else index
        if space == "global" and _did(row) == {"writes"} and first != line:
            return (
                "both lines store to the same element, so check their indices: let "
                "them give each thread an element of its own, or let one store alone"
            )
        if first == line and at_once:
            alone = "Let each thread touch its own element, or use an atomic"
            return f"{_AT_ONCE}. {alone}"
        if first == line:
            alone = f"let each thread touch its own element, or use an atomic; {again}"
            if _did(row) != {"reads", "writes"}:
                return alone
            return (
                f"{alone}; and where it reads what another writes in the same round, "
                f"read into a variable, then {barrier}, then write"
            )
        upper, lower = sorted((first, line))
        standing = barrier_between(self.source, upper, lower, one_warp)
        if standing:
            name, at = standing
            return (
                f"the {name}() on line {at} stands between the two in one round of the "
                "loop, or one call of the function, so one of them belongs to the "
                f"next: put a {barrier} behind line {lower} too, before line {upper} "
                "comes again"
            )
        lanes = ", lanes of one warp" if one_warp else ""
        return (
            f"put a {barrier} between the two{lanes}{other}, or let each thread touch "
            "its own element"
        )

    def between_blocks(
        self, row: Any, first: int, line: int, buffer: str | None
    ) -> str:
        """Say how accesses of two blocks that race can be put in order."""
        did = _did(row)
        if did == {"updates"}:
            return (
                "an atomic whose name ends in _block is one for its own block's "
                "threads only: use the one without _block, as atomicAdd() for "
                "atomicAdd_block()"
            )
        if row["narrow"]:
            return (
                "__threadfence_block() reaches this block's threads only: what another "
                "block is to see needs __threadfence() before the atomic that tells of "
                "it"
            )
        # On one line it is a +=, where nothing but an atomic helps.
        if "reads" in did and first != line:
            return (
                "blocks run in any order: leave the reading to a later launch, or let "
                "the writer call __threadfence() and then count itself by an atomic"
            )
        if self._stores_alone(row, first, line, buffer):
            return (
                "both store to the same element, and blocks run in any order: check "
                "the index, which is to give each block elements of its own"
            )
        return "blocks run in any order: give each its own element, or use an atomic"

    def _stores_alone(
        self, row: Any, first: int, line: int, buffer: str | None
    ) -> bool:
        """Whether one line stores, and what it stores was not read from there."""
        stores = _did(row) == {"writes"} and first == line
        changed = (line, buffer) in self.loaded or buffer in self.read
        return stores and not changed


def races_of(
    raw: RawTrace, lines: dict[int, int], places: Places, source: Sequence[str]
) -> Races:
    """Collect what the whole launch tells of its races."""
    loaded = {
        (lines.get(int(site["pc"]), 0), _buffer(site, "sample", worker, places))
        for worker in raw.workers
        for site in worker.sites
        if op_name(int(site["op"])) == "load"
    }
    races = [
        (row, worker)
        for worker in raw.workers
        for row in worker.problems
        if row["kind"] == RACE
    ]
    read = {
        _buffer(row, "address", worker, places)
        for row, worker in races
        if "reads" in _did(row)
    }
    across = any(
        row["block"] == row["other_block"] and not in_one_warp(row) for row, _ in races
    )
    return Races(source, frozenset(loaded), frozenset(read), across)


def _buffer(row: Any, address: str, worker: Recorded, places: Places) -> str | None:
    at = int(row["place"]), int(row[address])
    return places.find(*at, worker.static_low, worker.dynamic_low).buffer


def _did(row: Any) -> set[str]:
    return {DID[op_name(int(row[op]))] for op in ("op", "other_op")}


def in_one_warp(row: Any) -> bool:
    """Whether the two threads of a race are lanes of one warp."""
    return bool(
        row["block"] == row["other_block"]
        and row["thread"] // 32 == row["other_thread"] // 32
    )


def barrier_between(
    source: Sequence[str], upper: int, lower: int, one_warp: bool
) -> tuple[str, int] | None:
    """Find a barrier that whoever goes on from one line to another comes to.

    Args:
        source: the text's lines.
        upper: the first of the two.
        lower: the second.
        one_warp: whether a barrier of the warp is one for those that race.

    Returns:
        Its name and its line; or None, also where that is not sure.
    """
    between = "\n".join(mask("\n".join(source)).splitlines()[upper : lower - 1])
    for found in _SYNC.finditer(between):
        before = between[: found.start()]
        name = found.group().rstrip("( ")
        # Alone behind an if or an else, or in a block that began behind the line.
        alone = before.rstrip().endswith((")", "else")) or _LEAVES.search(before)
        if not alone and _encloses(before) and (one_warp or name != "__syncwarp"):
            return name, upper + 1 + before.count("\n")
    return None


def _encloses(before: str) -> bool:
    """Whether a text's end stands in a block that its beginning is inside of."""
    depth = least = 0
    for brace in re.findall(r"[{}]", before):
        depth += 1 if brace == "{" else -1
        least = min(least, depth)
    return depth == least


def order_of_ranks(row: Any) -> str:
    """Say how accesses of two ranks that race can be put in order."""
    fence = int(row["narrow"])
    if _did(row) == {"updates"}:
        return (
            "an atomic is one for its own GPU's threads only, unless its name ends in "
            "_system: use that one, as atomicAdd_system() for atomicAdd()"
        )
    if fence == _NONE_BEHIND:
        return (
            "the one that writes told of it, and the other one saw that; but a flag "
            "that was seen does not hold back what is read behind it: call "
            "__threadfence_system() between the two here, too"
        )
    if fence:
        return (
            "between ranks a fence is __threadfence_system(), and an atomic one whose "
            "name ends in _system: the others reach this rank's GPU only"
        )
    if _did(row) == {"writes"}:
        return (
            "two ranks write the same element, which no fence puts in order: check "
            "whose element it is"
        )
    return (
        "ranks run as they like: the one that writes calls __threadfence_system() and "
        "then sets a flag by an atomic of _system, behind a __syncthreads() where a "
        "whole block wrote; the other one looks at the flag by such an atomic until "
        "it is set, and touches this only then, behind a __syncthreads() where one "
        "thread looked for all. Where these stand, check whose element is meant"
    )
