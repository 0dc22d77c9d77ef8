"""A learner's source with what each line moved beside it, as a trace saw it.

Drawn by the supervisor from its own copy of the source: of the worker only figures
are taken, and they are escaped like any other text.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

from autograder.judge.words import clean
from autograder.languages import code_of

_MOST_LINES = 24
_STYLE = (
    "overflow-x:auto;font-size:.85em;line-height:1.5;padding:.4em .6em;margin:.4em 0;"
    "border:1px solid var(--kw-muted,#7d8794);border-radius:4px"
)
_MARK = "color:var(--kw-bad,#d9534f);font-weight:600"
_FIGURE = "color:var(--kw-muted,#7d8794)"


@dataclass(frozen=True)
class Row:
    """One line of the source: its number, its text, its figures, whether it is bad."""

    number: int
    text: str
    figures: tuple[str, ...]
    marked: bool


def rows(source: str, detail: dict[str, Any]) -> list[Row]:
    """Return the lines with a mark or a figure, and those right around the marks.

    Args:
        source: the learner's cell.
        detail: a gate's, with ``figures`` by line and ``marked`` lines.
    """
    figures = detail.get("figures")
    marked = detail.get("marked")
    if not isinstance(figures, dict) or not isinstance(marked, list) or not marked:
        return []
    lines = code_of(source).split("\n")
    shown = {int(line) for line in figures if str(line).isdigit()}
    for line in marked:
        shown |= {line - 1, line, line + 1}
    found = []
    for number in sorted(n for n in shown if 1 <= n <= len(lines))[:_MOST_LINES]:
        said = figures.get(str(number), [])
        text = clean(lines[number - 1], 200).rstrip()
        if text or said:
            words = tuple(clean(words, 120) for words in said)
            found.append(Row(number, text, words, number in marked))
    return found


def as_text(source: str, detail: dict[str, Any]) -> list[str]:
    """Draw the margin for a terminal: a mark, the line, its figures below it."""
    out: list[str] = []
    for row in rows(source, detail):
        out.append(f"  {'>' if row.marked else ' '} {row.number:>3} | {row.text}")
        out += [f"        |     {words}" for words in row.figures]
    return out


def as_html(source: str, detail: dict[str, Any]) -> str:
    """Draw the margin for a notebook or a report; '' where nothing is marked."""
    found = rows(source, detail)
    if not found:
        return ""
    lines = []
    for row in found:
        mark = "▶" if row.marked else " "
        style = f' style="{_MARK}"' if row.marked else ""
        lines.append(
            f"<span{style}>{mark} {row.number:>3} {escape(row.text)}</span>"
            + "".join(
                f'\n<span style="{_FIGURE}">       {escape(words)}</span>'
                for words in row.figures
            )
        )
    label = "the source, with what each line moved; marked lines are at fault"
    return (
        f'<pre class="kw-margin" role="group" aria-label="{label}" tabindex="0" '
        f'style="{_STYLE}">' + "\n".join(lines) + "</pre>"
    )
