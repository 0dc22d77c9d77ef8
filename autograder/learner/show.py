"""How a check shows itself: rich HTML in a notebook, plain text in a terminal."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from html import escape

from autograder.judge.picture import LEGEND, svg
from autograder.judge.results import Gate, Result
from autograder.judge.words import clean
from autograder.report import margin
from autograder.report.html import message_html
from autograder.report.points import MARKS, part_words

_STYLE = (
    "border-left:4px solid var({colour},{fallback});padding:.3em .8em;margin:.3em 0;"
    "font-family:system-ui,sans-serif;line-height:1.45;max-width:46em"
)
# Colours of the book where it defines them; mid tones that read on both themes.
_COLOURS = {
    "good": ("--kw-good", "#2f9e6a"),
    "bad": ("--kw-bad", "#d9534f"),
    "muted": ("--kw-muted", "#7d8794"),
}
_FILL = (
    "<style>.kw-check .kw-right{fill:var(--kw-good,#2f9e6a)}"
    ".kw-check .kw-wrong{fill:var(--kw-bad,#d9534f)}"
    ".kw-check .kw-untouched{fill:var(--kw-warm,#d0861f)}"
    ".kw-check svg{max-width:100%;height:auto}</style>"
)


@dataclass(frozen=True)
class Notice:
    """Something to say that is no verdict."""

    message: str

    @property
    def passed(self) -> bool:
        """Nothing was checked, so nothing passed."""
        return False

    def __repr__(self) -> str:
        return self.message

    def _repr_html_(self) -> str:
        return _box("muted", escape(self.message))


@dataclass(frozen=True)
class Hint:
    """One hint: its text, which it is, and whether all have been given."""

    text: str
    number: int
    of: int
    again: bool = False

    def __repr__(self) -> str:
        return "\n".join(textwrap.wrap(f"{self._head()}: {self.text}", 88))

    def _repr_html_(self) -> str:
        # As everywhere in what is declared: between backticks stands code.
        text = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(self.text))
        return _box("muted", f"<b>{self._head()}.</b> {text}")

    def _head(self) -> str:
        again = ", the last" if self.again or self.number == self.of else ""
        return f"Hint {self.number} of {self.of}{again}"


@dataclass(frozen=True)
class CheckResult:
    """What ``check`` found.

    Args:
        result: the verdict, as ``make grade`` would record it.
        seed: what the values were drawn from; ``SEED=`` replays it.
        note: what concerns the cell and not the verdict on it.
    """

    result: Result
    seed: int
    note: str = ""

    @property
    def passed(self) -> bool:
        """Whether every gate that can be judged here was passed."""
        return self.result.passed

    @property
    def message(self) -> str:
        """What is wrong and how to mend it, or what to try next."""
        return self.result.message

    def __bool__(self) -> bool:
        return self.passed

    def __repr__(self) -> str:
        result = self.result
        lines = [f"{MARKS[result.status]} {result.exercise}: {self._headline()}"]
        text = "\n".join([*self._notes(), result.message])
        for paragraph in clean(text).splitlines():
            lines += textwrap.wrap(
                paragraph, 88, initial_indent="  ", subsequent_indent="  "
            )
        for gate in result.gates:
            lines += self._gate_lines(gate)
        if result.printed.strip():
            lines += ["  printed:", *self._printed()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        result = self.result
        colour = "good" if result.passed else "bad"
        if result.words in ("not attempted", "not checked", "not graded"):
            colour = "muted"
        parts = [
            f"<b>{MARKS[result.status]} {escape(result.title)}</b>: "
            f"{escape(self._headline())}",
            *map(message_html, self._notes()),
            message_html(result.message),
        ]
        parts += [self._gate_html(gate) for gate in result.gates]
        if result.printed.strip():
            text = escape("\n".join(self._printed()))
            parts.append(
                "<details><summary>What it printed</summary>"
                f"<pre>{text}</pre></details>"
            )
        return f'<div class="kw-check">{_FILL}{_box(colour, "".join(parts))}</div>'

    def _notes(self) -> list[str]:
        """Return what there is to say beside the verdict."""
        explains = "" if self.passed else self.result.note
        return [note for note in (self.note, explains) if note]

    def _headline(self) -> str:
        result = self.result
        words = result.words
        right = result.gate("right")
        if right is not None and right.status == "passed":
            words += f", {right.message} passed"
        unjudged = [
            f"{name} {part_words(result, name)}"
            for name in ("counts", "speed")
            if part_words(result, name) in ("not checked", "not measured")
        ]
        if result.passed and unjudged:
            words += f" ({', '.join(unjudged)})"
        return words

    def _gate_lines(self, gate: Gate) -> list[str]:
        lines = margin.as_text(self.result.source, gate.detail)
        if gate.name == "counts" and gate.status == "passed":
            lines += textwrap.wrap(
                f"moves what it should: {clean(gate.message)}",
                88,
                initial_indent="  ",
                subsequent_indent="  ",
            )
        rows = gate.detail.get("picture")
        if isinstance(rows, list) and rows:
            name = clean(gate.detail.get("output"), 80)
            lines += [f"  {name}:", *(f"    {row}" for row in rows), f"    {LEGEND}"]
        return lines

    def _gate_html(self, gate: Gate) -> str:
        source = margin.as_html(self.result.source, gate.detail)
        if source:
            return source
        if gate.name == "counts" and gate.status == "passed":
            return f"<div>moves what it should: {escape(clean(gate.message))}</div>"
        rows = gate.detail.get("picture")
        if isinstance(rows, list) and rows:
            name = escape(clean(gate.detail.get("output"), 80))
            drawn = svg([str(row) for row in rows])
            return f"<div><code>{name}</code>, wrong places marked<br>{drawn}</div>"
        return ""

    def _printed(self) -> list[str]:
        lines = clean(self.result.printed).rstrip().splitlines()
        kept = lines[:20]
        if len(lines) > len(kept):
            kept.append(f"… {len(lines) - len(kept):,} more lines")
        return [f"    {line[:200]}" for line in kept]


def _box(colour: str, inner: str) -> str:
    name, fallback = _COLOURS[colour]
    style = _STYLE.format(colour=name, fallback=fallback)
    return f'<div style="{style}">{inner}</div>'
