"""The gate *counts*: does an answer move what it should, as a trace counted it?"""

from __future__ import annotations

from typing import Any

from autograder.exercise import Count, Exercise
from autograder.results import Gate
from autograder.traces import Trace

_UNITS = {
    "sectors_per_request": ("sector", " a request"),
    "wavefronts_per_request": ("wavefront", " a request"),
    "bytes": ("byte", ""),
    "lanes_per_request": ("active lane", " a request"),
}
# On average of the 32: the last warp of a row may be half empty.
_FEWEST_LANES = 16


def check_counts(exercise: Exercise, trace: Trace | None) -> Gate:
    """Hold a trace to each figure that an exercise declares."""
    if trace is None:
        return Gate("counts", "not checked", "there is no trace to count in")
    rows: list[dict[str, Any]] = []
    bad: list[str] = []
    for count in exercise.counts:
        got = trace.total(count.metric, count.space, count.op)
        # Shared memory may be avoided, where it is not asked for; what nobody saw move
        # in global memory was hidden from the trace.
        avoided = count.space == "shared" and count.at_least is None
        fine = avoided if got is None else count.earned_by(got)
        alone = _lanes_alone(count, trace) if fine else 0.0
        row: dict[str, Any] = {
            "metric": count.metric,
            "space": count.space,
            "op": count.op,
            "got": got,
            "ideal": count.ideal,
            "at_most": count.at_most,
            "at_least": count.at_least,
            "fine": fine and not alone,
            "line": trace.worst(
                "lanes_per_request" if alone else count.metric, count.space, count.op
            ),
        }
        rows.append(row)
        if alone:
            bad.append(_few_lanes(count, alone, row["line"]))
        elif not fine:
            bad.append(_missed(count, got, row["line"]))
    detail = {"counts": rows, **figures(trace)}
    if bad:
        detail["marked"] = sorted({r["line"] for r in rows if not r["fine"]} - {0})
        return Gate("counts", "failed", " ".join(bad), detail)
    return Gate("counts", "passed", ", ".join(map(count_words, rows)), detail)


def _lanes_alone(count: Count, trace: Trace) -> float:
    """Return how many lanes load together where they are few; else 0.

    A lane by itself touches one sector, which is no merit: a warp's 32, one after the
    other, then take 32 requests.
    """
    if count.metric != "sectors_per_request" or count.at_most is None:
        return 0.0
    lanes = trace.total("lanes_per_request", count.space, count.op)
    return lanes if lanes is not None and lanes < _FEWEST_LANES else 0.0


def _few_lanes(count: Count, lanes: float, line: int) -> str:
    where = f"line {line}: " if line else ""
    return (
        f"{where}on average {_many(lanes, 'lanes_per_request')} makes the "
        f"{count.space} {count.op}s: few sectors are no merit then. Let all 32 lanes "
        "of a warp take part, each with an element of its own."
    )


def count_words(row: dict[str, Any]) -> str:
    """Say one figure beside its ideal: ``global loads: 4 sectors a request``."""
    subject = f"{row['space']} {row['op']}s"
    if row["got"] is None:
        return f"no {subject}"
    got, beside = row["got"], f"(ideal {_number(row['ideal'])})"
    if not row["space"]:
        return f"{_number(got)} {row['metric']} {beside}"
    if row["metric"] in _BY_BLOCK:
        return f"{_BY_BLOCK[row['metric']][0]} a block: {_number(got)} {beside}"
    return f"{subject}: {_many(got, row['metric'])} {beside}"


def _missed(count: Count, got: float | None, line: int) -> str:
    what = f"{count.space} {count.op}s"
    if got is None and not count.space:
        return f"Nobody counted its {count.metric}."
    if got is None and count.space == "shared":
        return f"The trace saw no {what}: the values are to pass through shared memory."
    if got is None:
        return f"The trace saw no {what}, and without any the output cannot be made."
    where = f"line {line}: " if line else ""
    bound = _bound(count)
    if not count.space:
        return (
            f"It takes {_number(got)} {count.metric}; the ideal is "
            f"{_number(count.ideal)}, and {bound} earn the points."
        )
    verb = "have" if count.metric == "lanes_per_request" else "take"
    if count.metric in _BY_BLOCK:
        did = _BY_BLOCK[count.metric][1].format(_number(got))
        return (
            f"{did}; the ideal is {_number(count.ideal)}, and {bound} earn the points."
        )
    return (
        f"{where}the {what} {verb} {_many(got, count.metric)}; the ideal is "
        f"{_number(count.ideal)}, and {bound} earn the points."
    )


# What a block does as a whole: its name, and the sentence that says how often.
_BY_BLOCK = {
    "barriers": ("barriers", "A block waits at {} barriers"),
    "shuffles": ("shuffles", "A block's warps shuffle {} times"),
    "products": ("products", "A block's warps multiply {} times on tensor cores"),
    "matrix_loads": ("ldmatrix", "A block's warps load {} times by ldmatrix"),
}


def _bound(count: Count) -> str:
    """Say which figures earn the points."""
    words = []
    if count.at_least is not None:
        words.append(f"at least {_number(count.at_least)}")
    if count.at_most is not None:
        words.append(f"at most {_number(count.at_most)}")
    return " and ".join(words)


def figures(trace: Trace) -> dict[str, Any]:
    """Return what each line of the source did, for the margin beside it."""
    lines: dict[str, list[str]] = {}
    for a in trace.accesses:
        if a.space == "global" and a.sectors:
            cost = _many(a.sectors / max(1, a.requests), "sectors_per_request")
            ideal = a.ideal_sectors
        elif a.space == "shared" and a.wavefronts:
            cost = _many(a.wavefronts / max(1, a.requests), "wavefronts_per_request")
            ideal = a.ideal_wavefronts
        else:
            cost, ideal = f"{a.bytes:,} bytes", 0.0
        words = f"{a.op} {a.buffer or a.space}: {cost}"
        if ideal:
            words += f" (ideal {_number(ideal)})"
        lines.setdefault(str(a.line), []).append(words)
    return {"figures": {line: words[:8] for line, words in lines.items()}}


def _many(value: float, metric: str) -> str:
    unit, each = _UNITS[metric]
    return f"{_number(value)} {unit}{'' if value == 1 else 's'}{each}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 or value == int(value) else f"{value:.3g}"
