"""Points and statuses in words and short numbers, for every report alike."""

from __future__ import annotations

from autograder.judge.results import Gate, Part, Result

MARKS = {
    "passed": "✓",
    "failed": "✗",
    "timeout": "✗",
    "crashed": "✗",
    "infrastructure error": "!",
}


# Words for an answer of which no gate was tried.
UNTRIED = ("no answer", "not attempted")


def number(value: float) -> str:
    """Show points without needless zeros: 3, 2.5, 3.75."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def out_of(earned: float, possible: float, points: float) -> str:
    """Show what was earned of what could be earned here."""
    text = f"{number(earned)} / {number(possible)}"
    return text if possible == points else f"{text} ({number(points)} in all)"


def correct_words(result: Result) -> str:
    """Say what came of an exercise, speed apart."""
    return result.words.split(", fast (GPU)")[0]


def part_words(result: Result, name: str) -> str:
    """Say what came of a part that may not have been measured: counts or speed."""
    part = part_of(result, name)
    if part is None:
        return "–"
    if part.earned is None:
        return "not checked" if name == "counts" else "not measured"
    gate = result.gate("counts" if name == "counts" else "fast")
    if gate is None:
        return "not reached"
    if name == "speed" and gate.status == "passed":
        band, ratio = gate.detail.get("band"), gate.detail.get("ratio")
        share = f" {ratio:.0%}" if isinstance(ratio, float) else ""
        return f"fast (GPU): {band}{share}" if band != "none" else f"slow{share}"
    if name == "counts":
        return counts_words(gate)
    return gate.status


def counts_words(gate: Gate) -> str:
    """Say what came of the counts: the figure that costs the points, or ``ideal``."""
    rows = gate.detail.get("counts")
    if not isinstance(rows, list):
        return gate.status
    bad = next((row for row in rows if not row["fine"]), None)
    if bad is None:
        near = all(
            row["at_least"] is not None or (row["got"] or 0) <= 1.05 * row["ideal"]
            for row in rows
        )
        return "passed, ideal" if near else "passed"
    got = "none" if bad["got"] is None else number(bad["got"])
    return f"failed: {got}, ideal {number(bad['ideal'])}"


def part_of(result: Result, name: str) -> Part | None:
    """Return one share of the points, if the exercise has it."""
    return next((part for part in result.parts if part.name == name), None)
