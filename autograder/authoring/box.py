"""The exercise box, as Markdown that reads well in a notebook and in the book.

What a declaration says is plain text, for a terminal shows it too: only what stands
between backticks is code. Everything else is kept from being read as Markdown.
"""

from __future__ import annotations

import re

from autograder.exercise import Exercise
from autograder.languages import SYNTAX

KINDS = {
    "warm-up": "Warm-up",
    "core": "Core",
    "detective": "Detective",
    "ladder": "Ladder, open at the top",
}


def title(exercise: Exercise) -> str:
    """Return the heading of the box."""
    return f"Exercise: {exercise.title}"


def facts(exercise: Exercise) -> str:
    """Return kind, points and language in one line."""
    points = f"{exercise.points} point{'' if exercise.points == 1 else 's'}"
    return f"{KINDS[exercise.kind]} · {points} · {SYNTAX[exercise.language].title}"


def body(exercise: Exercise) -> str:
    """Return goal and requirements."""
    lines = [f"**Goal.** {as_markdown(exercise.goal)}"]
    if exercise.requirements:
        lines += ["", "**Requirements**", ""]
        lines += [
            f"- {as_markdown(requirement)}" for requirement in exercise.requirements
        ]
    return "\n".join(lines)


def for_notebook(exercise: Exercise) -> str:
    """Return the whole box as a quotation, with the way to a hint."""
    text = "\n".join(
        [
            f"**{as_markdown(title(exercise))}** ({facts(exercise)})",
            "",
            body(exercise),
            "",
            f"Edit the next cell, run it, then run the check below it. Stuck? "
            f'`hint("{exercise.id}")` gives the next of {len(exercise.hints)} hints '
            "and costs nothing.",
        ]
    )
    return quoted(text)


def as_markdown(text: str) -> str:
    """Return declared text as Markdown that shows it as it stands."""
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(
        part if part.startswith("`") else re.sub(r"([\\*_\[\]<>$~{}|])", r"\\\1", part)
        for part in parts
    )


def quoted(text: str) -> str:
    """Return Markdown as a quotation."""
    return "\n".join(f"> {line}" if line else ">" for line in text.splitlines())
