"""From what the runtime reported to problems in the author's terms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from kernelwright.emulator import tracing
from kernelwright.emulator.faults import TOGETHER, fault_of
from kernelwright.emulator.operations import OPERATIONS
from kernelwright.emulator.tracing import RawTrace, Recorded
from kernelwright.trace.lines import op_name
from kernelwright.trace.places import Place, Places, Touched
from kernelwright.trace.races import (
    DID,
    Races,
    in_one_warp,
    order_of_ranks,
    races_of,
)
from kernelwright.trace.report import Problem, Triple
from kernelwright.trace.shapes import indices

_FAULTS = {
    "memory": "unmapped access",
    "barrier": "divergent barrier",
    "sync mask": "absent lane",
    "KernelDeadlock": "deadlock",
    "KernelTimeout": "timeout",
}


def problems_of(
    raw: RawTrace,
    lines: dict[int, int],
    places: Places,
    source: Sequence[str],
    deadline_s: float,
    line_of: Callable[[int], int],
) -> tuple[Problem, ...]:
    """Collect what all workers reported, alike ones together."""
    found: dict[tuple[str, tuple[int, ...], str | None], Problem] = {}
    races = races_of(raw, lines, places, source)
    reported = [(row, worker) for worker in raw.workers for row in worker.problems]
    for row, worker in sorted(reported, key=lambda each: _rank(each[0])):
        problem = _problem(row, worker, lines, places, raw.workers, races)
        key = (problem.kind, tuple(sorted(problem.lines)), problem.buffer)
        if key in found:
            total = found[key].count + problem.count
            problem = replace(found[key], count=total)
        found[key] = problem
    problems = list(found.values())
    fault = fault_of(raw.outcome, "the kernel", line_of, deadline_s)
    if fault is not None:
        kind = _FAULTS.get(type(fault).__name__) or _FAULTS.get(fault.kind, fault.kind)
        threads = (fault.thread,) if fault.thread else ()
        at = tuple(
            dict.fromkeys(
                line for line in (fault.line, raw.outcome.other_line) if line > 0
            )
        )
        problems.append(
            Problem(
                kind, at, fault.block or (0, 0, 0), threads, None, None, 1, str(fault)
            )
        )
    problems.sort(key=lambda p: (p.lines[:1], p.kind))
    return tuple(problems)


def _rank(row: Any) -> tuple[int, int, int]:
    """Put first what says the same however the blocks were shared out to workers.

    And of races in a block those between warps, which a barrier of one warp leaves.
    """
    order = 0
    if row["kind"] == tracing.RACE and row["block"] != row["other_block"]:
        order = 2
    elif row["kind"] == tracing.RACE and in_one_warp(row):
        order = 1
    return order, int(row["block"]), int(row["thread"])


def _problem(
    row: Any,
    worker: Recorded,
    lines: dict[int, int],
    places: Places,
    workers: Sequence[Recorded],
    races: Races,
) -> Problem:
    kind = int(row["kind"])
    if kind == tracing.OWN_ARRAY:
        return _past_own_array(row, places)
    # What else a wild instruction touched, on any worker, is what it was meant for.
    touched = _touched(row, workers) if kind == tracing.OUT_OF_BOUNDS else []
    where, space = places.meant(int(row["place"]), int(row["address"]), worker, touched)
    block = places.block_index(int(row["block"]))
    thread = places.thread(int(row["thread"]))
    line = lines.get(int(row["pc"]), 0) or int(row["line"])
    other_line = lines.get(int(row["other_pc"]), 0) or int(row["other_line"])
    did = DID[op_name(int(row["op"]))]
    who = _who(row, "thread", "block", places)
    threads: tuple[Triple, ...] = (thread,)
    at: tuple[int, ...] = (line,)
    element, index = _element(where, int(row["width"]), space)
    if kind == tracing.RACE:
        other = places.thread(int(row["other_thread"]))
        other_block = places.block_index(int(row["other_block"]))
        threads, at = (other, thread), tuple(dict.fromkeys((other_line, line)))
        first = _who(row, "other_thread", "other_block", places)
        ranks = {places.rank(int(row[name])) for name in ("block", "other_block")}
        before = DID[op_name(int(row["other_op"]))]
        # Of an earlier copy it was noted that it wrote.
        if _ever(row["other_pc"], tracing.ASYNC_STORE, workers):
            before = "copies into"
        if did == "copies":
            did = "copies into"
        if len(ranks) > 1:
            mend = order_of_ranks(row)
        elif other_block == block and {before, did} == {"reads", "copies into"}:
            mend = _COPY_AND_READ
        elif other_block == block:
            mend = races.within_a_block(
                row, other_line, line, where.buffer, space,
                at_once=before == did == "writes"
                and any(_meet_at_once(row[pc], workers) for pc in ("pc", "other_pc")),
            )  # fmt: skip
        else:
            mend = races.between_blocks(row, other_line, line, where.buffer)
        name = "race"
        message = (
            f"race on {element}: {first} {before} it on line {other_line}, {who} "
            f"{did} it on line {line}, and nothing orders the two: {mend}"
        )
    elif kind == tracing.OUT_OF_BOUNDS:
        name, message = _outside(
            where, element, line, who, did, int(row["width"]), space, places
        )
    elif kind == tracing.MISALIGNED:
        name = "misaligned"
        width = int(row["width"])
        message = (
            f"line {line}: {who} {did} {width} bytes at once at byte {where.offset} of "
            f"{where.buffer}, which is no multiple of {width}, and a GPU refuses it: "
            f"check the index, begin at a multiple of {width} bytes, or move fewer at "
            "once"
        )
    elif kind == tracing.UNWRITTEN:
        name = "uninitialised read"
        copied = other_line if row["other_op"] == tracing.ASYNC_STORE else None
        message = f"line {line}: {who} {did} {element}, {_why_unwritten(space, copied)}"
    elif kind == tracing.DIVERGENT_BARRIER:
        name = "divergent barrier"
        at = tuple(dict.fromkeys((line, other_line)))
        message = (
            f"line {line}: some threads of block {_index(block)} wait at this "
            "__syncthreads, others went past it"
            + (f" and on to line {other_line}" if other_line else "")
            + ": move it out of the branch, or of the loop that some leave before "
            "others, so that every thread reaches it"
        )
    elif kind == tracing.ABSENT_LANE:
        name = "absent lane"
        mask = int(row["mask"])
        missing = _ranges([i for i in range(32) if mask >> i & 1])
        threads = (thread, places.thread(int(row["other_thread"])))
        message = f"line {line}: " + (
            f"lanes {missing} of a warp of block {_index(block)} never come to this "
            f"call: {TOGETHER}"
            if OPERATIONS[int(row["op"]) - 1].whole_warp
            else f"the mask of this warp operation names lanes that never come "
            f"({missing}) in block {_index(block)}: let them come too, with a value "
            "that changes nothing if they have none, or name only those that come"
        )
    else:
        name = "early exit"
        message = (
            f"line {line}: at this __syncthreads threads of block {_index(block)} had "
            "already returned: every thread must come to every barrier. Let none "
            "return before it, keep it out of every if, and guard the work instead"
        )
    return Problem(
        name, at, block, threads, where.buffer, index, int(row["count"]), message
    )


def _past_own_array(row: Any, places: Places) -> Problem:
    """Say which of a thread's own arrays it left, and with which index."""
    subscript = places.subscripts[int(row["subscript"])]
    index, extent = int(row["address"].astype("i8")), int(row["extent"])
    size = f", which has {extent} {subscript.unit}" if extent else ""
    message = (
        f"line {subscript.line}: {_who(row, 'thread', 'block', places)} "
        f"{subscript.did} {subscript.of}[{index}], outside of {subscript.of}{size}: "
        "keep every index inside of it"
    )
    return Problem(
        "out of bounds",
        (subscript.line,),
        places.block_index(int(row["block"])),
        (places.thread(int(row["thread"])),),
        subscript.name,
        index,
        int(row["count"]),
        message,
    )


def _who(row: Any, thread: str, block: str, places: Places) -> str:
    """Name the thread of a problem, and its rank where there are several."""
    number = int(row[block])
    name = (
        f"thread {_index(places.thread(int(row[thread])))} of block "
        f"{_index(places.block_index(number))}"
    )
    return f"{name} of rank {places.rank(number)}" if places.ranks > 1 else name


# Which of the two comes first is chance where nothing orders them.
_COPY_AND_READ = (
    "each thread waits for its own copies (kw::cp_async_wait), and a __syncthreads() "
    "behind that wait, not before it, shows them to the others. One must stand, too, "
    "between the reading and the next copy into the same place. Where they stand, the "
    "wait leaves too many groups open, or another stage is meant"
)


def _ever(pc: Any, op: int, workers: Sequence[Recorded]) -> bool:
    """Whether the instruction at a place ever did such an operation."""
    return any(
        bool(((worker.sites["pc"] == pc) & (worker.sites["op"] == op)).any())
        for worker in workers
    )


def _meet_at_once(pc: Any, workers: Sequence[Recorded]) -> bool:
    """Whether lanes of a warp once wrote one address by one instruction."""
    for worker in workers:
        sites = worker.sites
        stores = (sites["pc"] == pc) & (sites["op"] == tracing.STORE)
        for request in worker.log[stores[worker.log["site"]]]:
            lanes = [i for i in range(32) if int(request["mask"]) >> i & 1]
            if len({int(request["address"][i]) for i in lanes}) < len(lanes):
                return True
    return False


def _ranges(lanes: list[int]) -> str:
    """Name numbers in rising order briefly: ``0, 8 to 31``."""
    runs: list[list[int]] = []
    for lane in lanes:
        if runs and lane == runs[-1][-1] + 1:
            runs[-1].append(lane)
        else:
            runs.append([lane])
    return ", ".join(
        f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run))
        for run in runs
    )


def _touched(row: Any, workers: Sequence[Recorded]) -> list[Touched]:
    """List where the instruction of a problem went when it went right."""
    return [
        Touched(int(site["place"]), int(site["sample"]), worker)
        for worker in workers
        for site in worker.sites[worker.sites["pc"] == row["pc"]]
        if site["op"] == row["op"]
    ]


def _outside(
    where: Place,
    element: str,
    line: int,
    who: str,
    did: str,
    width: int,
    space: str,
    places: Places,
) -> tuple[str, str]:
    if where.buffer is None and space == "global":
        beside_null = (
            f"line {line}: {who} {did} address {where.offset % (1 << 64):#x}, which is "
            "a null pointer or near one"
        )
        if not places.empty:
            return "unmapped access", beside_null
        return "out of bounds", (
            f"{beside_null}, as {_list([*places.empty, *places.absent])} are: they "
            "have no elements, and no index is inside of them"
        )
    size = ", which is empty" if where.buffer else ""
    if where.size:
        unit = _unit(where, width, space)
        many = " x ".join(map(str, where.shape or (where.size // unit,)))
        size = f", which has {many} {'elements' if unit > 1 else 'bytes'}"
        # Which side was mistaken for another, an index does not tell; the sides do.
        sides = next((b.shape for b in places.buffers if b.name == where.buffer), ())
        if len(sides) > 1 and space == "global":
            size += f" ({' x '.join(map(str, sides))})"
    elif where.buffer and space == "shared":
        size += " (the launch asked for no bytes of dynamic shared memory)"
    part = "partly " if 0 <= where.offset < where.size else ""
    return "out of bounds", (
        f"line {line}: {who} {did} {element}, {part}outside of {where.buffer}{size}: "
        "keep every index inside of it"
    )


def _list(names: Sequence[str]) -> str:
    return ", ".join(names[:-1]) + f" and {names[-1]}" if len(names) > 1 else names[0]


def _why_unwritten(space: str, copied: int | None) -> str:
    """Say what a read came too early for; `copied` is an asynchronous copy's line."""
    if copied is not None:
        return (
            f"which an asynchronous copy (line {copied}) has not delivered yet: wait "
            "for its group (kw::cp_async_wait), then __syncthreads(), so that the "
            "other threads' copies are there too. Where both stand, the wait leaves "
            "too many groups open, or another stage is read than was copied"
        )
    if space == "shared":
        return (
            "which nobody has written in this block: let some thread write it before, "
            "or, where another element is meant, correct the index"
        )
    return (
        "which nobody has written: its memory was never initialised, and += or an "
        "atomic adds to whatever is there. Give each element its value with = before "
        "it is read, or, where the launch is your own, fill it before that"
    )


def _element(where: Place, width: int, space: str) -> tuple[str, int | None]:
    """Name an element, or the first and last of several that are moved at once."""
    if where.buffer is None:
        return "memory", None
    unit = _unit(where, width, space)
    first = where.offset // unit
    last = max(first, (where.offset + width - 1) // unit)
    named = [f"{where.buffer}{indices(where.shape, n)}" for n in (first, last)]
    return " to ".join(dict.fromkeys(named)), first


def _unit(where: Place, width: int, space: str) -> int:
    """Return in what bytes a buffer is counted; the access's where nothing tells."""
    known = where.element > (0 if space == "shared" else 1)
    return where.element if known else max(width, 1)


def _index(index: Triple) -> str:
    return f"({index[0]}, {index[1]}, {index[2]})"
