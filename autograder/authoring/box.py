"""The exercise box, as Markdown that reads well in a notebook and in the book."""

from __future__ import annotations

from autograder.exercise import Exercise

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
    language = "CUDA C++" if exercise.language == "cuda" else "Python"
    return f"{KINDS[exercise.kind]} · {points} · {language}"


def body(exercise: Exercise) -> str:
    """Return goal and requirements."""
    lines = [f"**Goal.** {exercise.goal}"]
    if exercise.requirements:
        lines += ["", "**Requirements**", ""]
        lines += [f"- {requirement}" for requirement in exercise.requirements]
    return "\n".join(lines)


def for_notebook(exercise: Exercise) -> str:
    """Return the whole box as a quotation, with the way to a hint."""
    text = "\n".join(
        [
            f"**✏️ {title(exercise)}** ({facts(exercise)})",
            "",
            body(exercise),
            "",
            f"Edit the next cell, run it, then run the check below it. Stuck? "
            f'`hint("{exercise.id}")` gives the next of {len(exercise.hints)} hints '
            "and costs nothing.",
        ]
    )
    return quoted(text)


def quoted(text: str) -> str:
    """Return Markdown as a quotation."""
    return "\n".join(f"> {line}" if line else ">" for line in text.splitlines())
