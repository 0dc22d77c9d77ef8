"""The gate *counts*: does an answer move what it should, as a trace counted it?

Totals of the whole launch decide, beside the least that the work needs. What a request
costs, and who does the same as others, explains.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from autograder.exercise import Count, Output, Problem
from autograder.ideals import ideal_of, passes_of
from autograder.judge.results import Gate
from autograder.judge.run import Run
from autograder.judge.traces import Access, Trace
from autograder.judge.values import cases_of, draw
from kernelwright.emulator.operations import BUSIEST_WARP, COUNTED
from kernelwright.trace.report import Sharing
from kernelwright.trace.shapes import shapes_in
from kernelwright.trace.triton.report import AVERAGE_PROGRAM, BUSIEST_PROGRAM

_UNITS = {
    "moved": "byte",
    "bytes": "byte",
    "requests": "request",
    "wavefronts": "wavefront",
    "writers": "writer",
    "readers": "reader",
}
# Of a warp's 32, on average: the last warp of a row may be half empty.
_FEWEST_LANES = 16
_TOLD = 3
_LANES = 32


def check_counts(run: Run, trace: Trace | None) -> Gate:
    """Hold a trace to each figure that an exercise declares."""
    if trace is None:
        return Gate("counts", "not checked", "there is no trace to count in")
    cases = list(cases_of(run.exercise, run.seed, public=True))
    case, purpose = cases[run.exercise.counted]
    problem = draw(run.exercise, case, run.seed, purpose)
    rows: list[dict[str, Any]] = []
    bad: dict[tuple[str, str], str] = {}
    for count in run.exercise.counts:
        if problem.launch is None and count.metric == "requests":
            # A program is not a warp: what one asks for at once is nobody's request.
            continue
        if problem.launch is None and count.metric == BUSIEST_WARP:
            if BUSIEST_PROGRAM not in trace.own:
                continue  # what was launched is no program of Triton's
            count = replace(count, metric=BUSIEST_PROGRAM)
        row = _row(count, problem, trace)
        rows.append(row)
        if not row["fine"]:
            kind = (count.space, count.op) if count.space else (count.metric, "")
            # That more requests bring more bytes needs no second word.
            if count.metric == "writers" or kind not in bad:
                said = _missed(count, row, problem, trace)
                said += _meet_in_one_bank(count, trace, run.cells[-1].source)
                said = f"{said} {count.advice}".rstrip()
                bad[kind] = f"{bad[kind]} {said}" if kind in bad else said
    detail = {"counts": rows, **figures(trace)}
    if bad:
        detail["marked"] = sorted({r["line"] for r in rows if not r["fine"]} - {0})
        return Gate("counts", "failed", " ".join(bad.values()), detail)
    told = [count_words(row) for row in rows if "requests" not in row["metric"]]
    return Gate("counts", "passed", ", ".join(told), detail)


def _row(count: Count, problem: Problem, trace: Trace) -> dict[str, Any]:
    """Put what was counted beside what it is held to."""
    got = trace.total(count.metric, count.space, count.op)
    if count.metric == BUSIEST_WARP:
        ideal = _of_the_average_warp(problem, trace)
    elif count.metric == BUSIEST_PROGRAM and count.ideal is None:
        ideal = trace.own.get(AVERAGE_PROGRAM, 0.0)
    else:
        ideal = ideal_of(count, problem)
    at_most = None if count.times is None else count.times * ideal
    # Shared memory may be avoided, where it is not asked for; what nobody saw move in
    # global memory was hidden from the trace.
    fine = count.space == "shared" and count.at_least is None
    if got is not None:
        enough = count.at_least is None or got >= count.at_least
        fine = enough and (at_most is None or got <= at_most)
    return {
        "metric": count.metric,
        "space": count.space,
        "op": count.op,
        "got": got,
        "ideal": ideal,
        "at_most": at_most,
        "at_least": count.at_least,
        "fine": fine,
        "line": _line_of_surplus(count, problem, trace, (got or 0) - ideal)
        or trace.worst(count.metric, count.space, count.op),
    }


def _line_of_surplus(
    count: Count, problem: Problem, trace: Trace, surplus: float
) -> int:
    """Return the line at which a buffer has been gone over more often than need be.

    Lines are taken in their order: what is loaded again stands below. 0 where no
    buffer's bytes are too many, or too few to be most of the surplus, or where they are
    not those of a parameter.
    """
    if count.space != "global" or count.ideal is not None or count.times is None:
        return 0
    tensors = problem.outputs if count.op == "store" else problem.arguments
    found: dict[float, int] = {}
    for name, value in tensors.items():
        if not isinstance(value, Output | torch.Tensor):
            continue
        least = passes_of(count, name) * math.prod(value.shape) * value.dtype.itemsize
        asked, crossed = 0.0, 0
        for access in sorted(trace.chosen(count.space, count.op), key=_by_line):
            before = asked
            # A Triton kernel's x_ptr is x.
            mine = access.buffer.removesuffix("_ptr") == name
            asked += access.bytes if mine else 0
            if before <= count.times * least < asked:
                crossed = access.line
        if crossed:
            found[asked - least] = crossed
    most = max(found, default=0.0)
    if count.metric != "requests" and 2 * most < surplus:
        return 0
    return found.get(most, 0)


def _by_line(access: Access) -> int:
    return access.line


def _of_the_average_warp(problem: Problem, trace: Trace) -> float:
    """Return how many requests of global memory a warp makes on average."""
    assert problem.launch is not None
    requests = sum(a.requests for a in trace.accesses if a.space == "global")
    warps = math.ceil(math.prod(problem.launch.block) / _LANES)
    return requests / (warps * math.prod(problem.launch.grid))


def count_words(row: dict[str, Any]) -> str:
    """Say one figure beside its ideal: ``global loads: 4,064 bytes (ideal 4,064)``."""
    subject = f"{row['space']} {row['op']}s"
    if row["got"] is None:
        return f"no {subject}"
    got = row["got"]
    beside = f"(ideal {_number(row['ideal'])})"
    if row["at_least"] is not None:
        beside = f"(wanted {_number(row['at_least'])} or more)"
    if row["metric"] == "writers":
        return f"{_many(got, 'writers')} an element {beside}"
    if row["metric"] == "readers":
        return f"{_many(got, 'readers')} of all of an input {beside}"
    if not row["space"] and row["metric"] not in COUNTED:
        return f"{_number(got)} {row['metric']} {beside}"
    if row["metric"] in COUNTED:
        return f"{row['metric']} a block: {_number(got)} {beside}"
    return f"{subject}: {_many(got, row['metric'])} {beside}"


def _missed(count: Count, row: dict[str, Any], problem: Problem, trace: Trace) -> str:
    """Say what is too much, or too little, and where it comes from."""
    what, got = f"{count.space} {count.op}s", row["got"]
    if got is None and count.space == "shared":
        return f"The trace saw no {what}: the values are to pass through shared memory."
    if got is None and not count.space:
        return f"Nobody counted its {count.metric}."
    if got is None:
        return f"The trace saw no {what}, and without any the output cannot be made."
    if count.metric == "writers":
        return _several_writers(problem, trace)
    if count.metric == "readers":
        return _several_readers(row, problem, trace)
    if count.metric == BUSIEST_WARP:
        return (
            f"{COUNTED[BUSIEST_WARP].sentence.format(_number(got))}, and the average "
            f"one {_number(row['ideal'])}{_bound(row)}: let all warps and all blocks "
            "share the work."
        )
    if count.metric == BUSIEST_PROGRAM:
        beside = (
            "and the average one" if count.ideal is None else "where one's share is"
        )
        return (
            f"The busiest program moves {_number(got)} bytes, {beside} "
            f"{_number(row['ideal'])}{_bound(row)}: let all programs share the work."
        )
    if count.metric in COUNTED:
        did = COUNTED[count.metric].sentence.format(_number(got))
        beside = "" if row["at_least"] else f"; the ideal is {_number(row['ideal'])}"
        return f"{did}{beside}{_bound(row)}."
    if not count.space:
        told = f"It takes {_number(got)} {count.metric}"
        return f"{told}; the ideal is {_number(row['ideal'])}{_bound(row)}."
    where = f"line {row['line']}: " if row["line"] else ""
    factor = got / row["ideal"] if row["ideal"] else 0
    times = f", {factor:.3g} times the ideal" if factor > 1 else "; the ideal is"
    why = "".join(_why(count, problem, trace))
    return (
        f"{where}the {what} take {_many(got, count.metric)} in all{times} "
        f"{_number(row['ideal'])}{_bound(row)}{why}."
    )


def _bound(row: dict[str, Any]) -> str:
    """Say which figures earn the points, where the ideal is not all that does."""
    if row["at_least"] is not None and row["got"] < row["at_least"]:
        return f", and at least {_number(row['at_least'])} earn the points"
    if row["at_most"] is not None and row["at_most"] > row["ideal"]:
        return f" (at most {_number(row['at_most'])} earn the points)"
    return ""


def _why(count: Count, problem: Problem, trace: Trace) -> Iterator[str]:
    """Say where it comes from: work done several times, or requests that cost more."""
    if count.space == "global":
        told = _done_by_all(count, problem, trace)
        if told:
            yield f": {told}"
            return
    chosen = trace.chosen(count.space, count.op)
    requests = sum(access.requests for access in chosen)
    lanes = sum(access.lanes * access.requests for access in chosen) / requests
    unit = "wavefronts" if count.space == "shared" else "sectors"
    cost = sum(getattr(access, unit) for access in chosen) / requests
    ideal = sum(getattr(a, f"ideal_{unit}") * a.requests for a in chosen) / requests
    often = _often(count, problem, chosen)
    # What explains more of it is said.
    if often >= 1.5 and often * ideal >= cost:
        did = "stored" if count.op == "store" else "asked for"
        yield f": elements are {did} {_number(often)} times as often as need be"
    elif cost > 1.2 * ideal and count.metric != "bytes":
        yield f": {_each(cost, unit)} per request, where {_number(ideal)} would do"
    if 0 < lanes < _FEWEST_LANES and not _are_few(count, problem):
        yield (
            f": on average {_each(lanes, 'active lanes')} per request. Let all 32 "
            "lanes of a warp take part, each with an element of its own"
        )


def _often(count: Count, problem: Problem, chosen: Sequence[Access]) -> float:
    """Return how often an element moves, beside how often it need; 0 if unknown."""
    if count.metric != "moved":
        return 0.0
    least = ideal_of(replace(count, metric="bytes"), problem)
    return sum(access.bytes for access in chosen) / least if least else 0.0


def _are_few(count: Count, problem: Problem) -> bool:
    """Whether there are not enough results for all lanes to store one."""
    if count.op != "store" or problem.launch is None:
        return False
    results = sum(math.prod(out.shape) for out in problem.outputs.values())
    threads = math.prod(problem.launch.grid) * math.prod(problem.launch.block)
    return results * _LANES < threads * _FEWEST_LANES


def _meet_in_one_bank(count: Count, trace: Trace, source: str) -> str:
    """Say that the length of a tile's rows puts each of its columns into one bank."""
    for a in trace.chosen(count.space, count.op):
        # All lanes, of four bytes each, one after another: in one bank, and no word
        # of it twice.
        alone = a.wavefronts == a.requests * _LANES == a.bytes / 4
        shapes = shapes_in(source).get(a.buffer, set())
        if count.space != "shared" or not alone or len(shapes) != 1:
            continue
        (shape,) = shapes
        if len(shape) == 2 and shape[1] % _LANES == 0:
            return (
                f" A row of {a.buffer} has {shape[1]} elements, so that all of a "
                "column lies in one bank: change the length of the rows, the second "
                "number, or where in its row an element is put."
            )
    return ""


def _done_by_all(count: Count, problem: Problem, trace: Trace) -> str:
    """Say who goes over all of a buffer, where these are more than it needs."""
    found: dict[str, list[str]] = {}
    chosen = trace.chosen(count.space, count.op)
    for s in trace.sharing:
        asked = sum(access.bytes for access in chosen if access.buffer == s.buffer)
        # What is small explains little.
        if s.op != count.op or 4 * asked < sum(access.bytes for access in chosen):
            continue
        wanted = max(1, _passes(count, s, problem))
        if max(s.threads, s.blocks) <= wanted:
            continue
        who = f"each of {_who(s.threads, s.blocks, problem)}"
        found.setdefault(who, []).append(f"all {s.elements:,} elements of {s.buffer}")
    does = "writes" if count.op == "store" else "reads"
    return "; ".join(f"{who} {does} {' and '.join(w)}" for who, w in found.items())


def _passes(count: Count, sharing: Sharing, problem: Problem) -> float:
    """Return how often a buffer is to be gone over."""
    names = list(problem.arguments)
    if problem.launch is not None and sharing.position < len(names):
        return passes_of(count, names[sharing.position])
    # A Triton kernel's parameters are its author's own.
    many = count.passes if isinstance(count.passes, Mapping) else {"": count.passes}
    return max(many.values(), default=1)


def _several_writers(problem: Problem, trace: Trace) -> str:
    """Say who stores the same elements."""
    said = []
    for s in trace.overwritten[:_TOLD]:
        where = f"line {s.line}: " if s.line else ""
        who = _who(s.index_threads, s.index_blocks, problem)
        said.append(f"{where}each of {who} writes {s.buffer}[{s.index}].")
    return f"{' '.join(said)} Let one alone store each element."


def _several_readers(row: dict[str, Any], problem: Problem, trace: Trace) -> str:
    """Say which inputs too many go over, from end to end."""
    whole = [s for s in trace.read_whole if s.blocks > row["at_most"]]
    what = " and ".join(f"all {s.elements:,} elements of {s.buffer}" for s in whole)
    return (
        f"Each of {_who(0, whole[0].blocks, problem)} reads {what}, and "
        f"{_number(row['at_most'])} at most need to: let each read no more than its "
        "own results are made of."
    )


def _who(threads: int, blocks: int, problem: Problem) -> str:
    """Name those that do the same: threads of one block, or blocks, or both."""
    triton = problem.launch is None
    if threads > blocks > 1:
        return f"{threads:,} threads of {blocks:,} blocks"
    if blocks > 1:
        return f"{blocks:,} {'programs' if triton else 'blocks'}"
    return f"{threads:,} {'lanes of a program' if triton else 'threads'}"


def figures(trace: Trace) -> dict[str, Any]:
    """Return what each line of the source did, for the margin beside it."""
    lines: dict[str, list[str]] = {}
    for a in trace.accesses:
        cost, ideal = _line_cost(a)
        words = f"{a.op} {a.buffer or a.space}: {cost}"
        if ideal:
            words += f" (ideal {_number(ideal)})"
        lines.setdefault(str(a.line), []).append(words)
    return {"figures": {line: words[:8] for line, words in lines.items()}}


def _line_cost(a: Access) -> tuple[str, float]:
    requests = max(1, a.requests)
    if a.space == "global" and a.sectors:
        return f"{_each(a.sectors / requests, 'sectors')} per request", a.ideal_sectors
    if a.space == "shared" and a.wavefronts:
        each = _each(a.wavefronts / requests, "wavefronts")
        return f"{each} per request", a.ideal_wavefronts
    return f"{a.bytes:,} bytes", 0.0


def _many(value: float, metric: str) -> str:
    return _each(value, f"{_UNITS[metric]}s")


def _each(value: float, units: str) -> str:
    """Say how many, with the unit in its number: 1 sector, 4 sectors."""
    return f"{_number(value)} {units.removesuffix('s') if value == 1 else units}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 or value == int(value) else f"{value:.3g}"
