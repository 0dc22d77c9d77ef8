"""Kernels in CUDA C++ that a Python answer prints, compiles and launches: what they do.

The text is no cell of the learner's: its lines are quoted, never counted as the cell's.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from autograder.worker.entry import WrongReturn
from autograder.worker.traced import told_access, told_problem
from autograder.worker.wire import Header
from kernelwright.cuda.kernel import Launcher

if TYPE_CHECKING:
    from kernelwright.trace.report import Problem, TraceReport

_MOST_LINES, _MOST_PROBLEMS, _MOST_KERNELS = 400, 20, 4
_LONGEST = 60_000
_LINE = re.compile(r"^line \d+: ")
_CALLS = re.compile(r"\b(expf|logf|sqrtf|tanhf|erff)\s*\(")


@contextmanager
def launches_seen(launch: Callable[..., None] | None = None) -> Iterator[list[Header]]:
    """List the kernels that are launched; ``launch`` is done in a launch's place."""
    seen: list[Header] = []
    plain = Launcher.__call__

    def launched(self: Launcher, *arguments: Any, **named: Any) -> None:
        if len(self.kernel.source) > _LONGEST:
            raise WrongReturn(
                f"the text of {self.kernel.name} has {len(self.kernel.source):,} "
                f"characters; at most {_LONGEST:,} are taken. Is what two others use "
                "printed once, with a name?"
            )
        told = {"source": self.kernel.source, "name": self.kernel.name}
        if told not in seen and len(seen) < _MOST_KERNELS:
            seen.append(told)
        (launch or plain)(self, *arguments, **named)

    Launcher.__call__ = launched  # type: ignore[method-assign]
    try:
        yield seen
    finally:
        Launcher.__call__ = plain  # type: ignore[method-assign]


def trace_launches(answer: Any, values: Sequence[Any]) -> Header:
    """Call a function with each of its launches traced, and describe what they did."""
    reports: list[TraceReport] = []

    def traced(self: Launcher, *arguments: Any) -> None:
        tracer = self.kernel.trace.options(blocks="all")
        reports.append(tracer[self.grid, self.block, self.shared](*arguments))

    with launches_seen(traced) as kernels:
        answer(*values)
    blocks: Counter[str] = Counter()
    lines, problems, sharing = [], [], []
    for report in reports:
        blocks.update(report.by_block)
        lines += [{**told_access(line), "line": 0} for line in report.lines]
        problems += [_quoted(problem, report) for problem in report.problems]
        sharing += [{**asdict(shared), "line": 0} for shared in report.sharing]
    texts = {kernel["source"] for kernel in kernels}
    calls = Counter(name for text in texts for name in _CALLS.findall(text))
    return {
        "ok": True,
        "launches": len(reports),
        "by_block": dict(blocks),
        "lines": lines[:_MOST_LINES],
        "problems": problems[:_MOST_PROBLEMS],
        "sharing": sharing[:_MOST_LINES],
        "own": {f"calls of {name} in the text": n for name, n in calls.items()},
    }


def _quoted(problem: Problem, report: TraceReport) -> Header:
    """Tell a problem with the text of its line, which nobody finds in the cell."""
    told = told_problem(problem)
    text = report.source.splitlines()
    quoted = [text[n - 1].strip() for n in problem.lines if 0 < n <= len(text)]
    said = _LINE.sub("", told["message"])
    where = f"the printed `{quoted[0]}`: " if quoted else ""
    return {**told, "lines": [], "message": f"{where}{said}"}
