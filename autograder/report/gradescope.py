"""Gradescope's ``results.json``, from the same record as every other report.

Source: Gradescope's autograder documentation, *Specifications*: a test has a score
and a maximum; ``visibility`` and ``output_format`` say how it is shown.
"""

from __future__ import annotations

from typing import Any

from autograder.judge.results import Record, Result
from autograder.judge.words import clean
from autograder.report.points import part_words
from autograder.report.table import summary


def results_json(record: Record) -> dict[str, Any]:
    """Return what Gradescope reads; points that were not measured are left out."""
    return {
        "score": record.earned,
        "execution_time": round(sum(result.seconds for result in record.results)),
        "output": "\n".join(summary(record)),
        "output_format": "text",
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "tests": [_test(result) for result in record.results],
        "extra_data": {
            "backend": record.backend,
            "sandbox": record.sandbox["name"],
            "trusted": record.sandbox["trusted"],
            "possible": record.possible,
            "points": record.points,
        },
    }


def _test(result: Result) -> dict[str, Any]:
    lines = [result.words, clean(result.message)]
    for name in ("counts", "speed"):
        lines.append(f"{name}: {part_words(result, name)}")
    return {
        "name": f"{result.stem}: {result.title}",
        "number": result.exercise,
        "score": result.earned,
        "max_score": result.possible,
        "status": "passed" if result.status == "passed" else "failed",
        "output": "\n".join(line for line in lines if line),
        "output_format": "text",
        "tags": [result.stem, result.kind, result.status],
        "visibility": "visible",
    }
