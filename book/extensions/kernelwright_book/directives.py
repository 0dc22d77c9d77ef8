"""Directives fed by what is declared and stored elsewhere: nothing is said twice."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from sphinx.directives.patches import Figure as SphinxFigure
from sphinx.util.docutils import SphinxDirective, SphinxRole

from autograder.authoring import box, results
from autograder.exercise import Exercise
from autograder.exercises import all_exercises
from autograder.regions import RegionError, read_region
from kernelwright.draw.bars import Bar, bars


class Folded(nodes.General, nodes.Element):
    """Something that opens on a click: ``<details>``, which the keyboard reaches."""


def open_folded(visitor: Any, node: Folded) -> None:
    """Write the opening of ``<details>`` with its summary."""
    classes = " ".join(["kw-folded", *node["classes"]])
    title = visitor.encode(node["summary"])
    visitor.body.append(f'<details class="{classes}"><summary>{title}</summary>')
    visitor.body.append('<div class="kw-folded-body">\n')


def close_folded(visitor: Any, node: Folded) -> None:
    """Close what ``open_folded`` opened."""
    visitor.body.append("</div></details>\n")


class _Ours(SphinxDirective):
    """What our directives share."""

    has_content = True
    required_arguments = 1
    final_argument_whitespace = True

    def root(self) -> Path:
        return Path(self.env.srcdir)

    def markdown(self, text: str, parent: nodes.Element) -> None:
        """Parse Markdown into ``parent``, with its errors at this directive."""
        source, line = self.get_source_info()
        lines = text.splitlines()
        content = StringList(lines, items=[(source, line)] * len(lines))
        self.state.nested_parse(content, self.content_offset, parent)

    def body(self, parent: nodes.Element) -> None:
        self.state.nested_parse(self.content, self.content_offset, parent)

    def exercise(self) -> Exercise:
        name = self.arguments[0].strip()
        try:
            return all_exercises()[name]
        except KeyError:
            raise self.error(f"no exercise is declared as {name!r}") from None


class ExerciseBox(_Ours):
    """``{exercise} id``: goal, requirements, points, from the declaration."""

    def run(self) -> list[nodes.Node]:
        """Return the box."""
        exercise = self.exercise()
        kind = f"kw-{exercise.kind}"
        frame = nodes.admonition(classes=["kw-exercise", kind])
        frame["ids"].append(f"exercise-{exercise.id.replace('_', '-')}")
        self.set_source_info(frame)
        title = nodes.title("", box.title(exercise))
        frame += title
        frame += nodes.paragraph("", box.facts(exercise), classes=["kw-facts"])
        self.markdown(box.body(exercise), frame)
        self.body(frame)
        return [frame]


class Hints(_Ours):
    """``{hints} id``: the declared hints, each folded."""

    def run(self) -> list[nodes.Node]:
        """Return the hints, each folded by itself."""
        folded: list[nodes.Node] = []
        hints = self.exercise().hints
        for number, hint in enumerate(hints, start=1):
            one = Folded(summary=f"Hint {number} of {len(hints)}", classes=["kw-hint"])
            self.markdown(box.as_markdown(hint), one)
            folded.append(one)
        frame = nodes.container(classes=["kw-hints"])
        frame += folded
        return [frame]


class Solution(_Ours):
    """``{solution} id``: the whole region, folded, and why it is so."""

    def run(self) -> list[nodes.Node]:
        """Return the folded answer, or nothing in the edition without."""
        if not self.config.kernelwright_solutions:
            return []
        exercise = self.exercise()
        try:
            region = read_region(self.root() / exercise.source, exercise.id)
        except RegionError as error:
            raise self.error(str(error)) from None
        one = Folded(summary=f"Solution: {exercise.title}", classes=["kw-solution"])
        code = nodes.literal_block(region.text_solved, region.text_solved)
        code["language"] = region.language
        one += code
        self.body(one)
        return [one]


class Results(_Ours):
    """``{results} name``: a table of stored measurements, and a plot of one column."""

    has_content = False
    option_spec: ClassVar = {
        "rows": directives.unchanged,
        "columns": directives.unchanged_required,
        "plot": directives.unchanged_required,
        "plot-rows": directives.unchanged_required,
        "peers": directives.unchanged_required,
    }

    def run(self) -> list[nodes.Node]:
        """Return the plot, where one is asked for, and the table."""
        name, folder = self.arguments[0].strip(), self.root() / "benchmarks/results"
        rows = results.names(self.options.get("rows", ""))
        frame = nodes.container(classes=["kw-results"])
        try:
            columns = results.parse_columns(self.options.get("columns", ""))
            if plot := results.plot(name, self.options, folder):
                frame += self.drawn(*plot)
            table = results.table(name, rows, columns, folder)
        except results.ResultsError as error:
            raise self.error(str(error)) from None
        self.markdown(table.markdown(), frame)
        return [frame]

    def drawn(self, heading: str, shares: list[Bar]) -> nodes.Node:
        """Return the bars of the column that ``:plot:`` names."""
        html = f'<div class="kw-plot">{bars(shares, heading)}</div>'
        return nodes.raw("", html, format="html")


class Questions(_Ours):
    """``{questions}``: what to predict before going on; not graded."""

    required_arguments = 0
    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the box."""
        title = self.arguments[0] if self.arguments else "Before you go on"
        frame = nodes.admonition(classes=["kw-questions"])
        self.set_source_info(frame)
        frame += nodes.title("", title)
        self.body(frame)
        return [frame]


class Dropdown(_Ours):
    """``{dropdown} title``: an aside that opens on a click."""

    def run(self) -> list[nodes.Node]:
        """Return the folded aside."""
        one = Folded(summary=self.arguments[0], classes=["kw-aside"])
        self.body(one)
        return [one]


class Drawing(SphinxFigure, SphinxDirective):
    """``{figure} file.svg``: an SVG set into the page, so that it takes its colours."""

    def run(self) -> list[nodes.Node]:
        """Return the figure; what is no SVG is left to docutils."""
        made = super().run()
        name = self.arguments[0]
        if not name.endswith(".svg") or not isinstance(made[0], nodes.figure):
            return made
        if not self.options.get("alt"):
            raise self.error("a figure says what it shows: give it :alt:")
        _, path = self.env.relfn2path(name)
        self.env.note_dependency(path)
        drawing = Path(path).read_text(encoding="utf-8")
        label = escape(self.options["alt"], quote=True)
        html = (
            f'<div class="kw-drawing" role="img" aria-label="{label}">{drawing}</div>'
        )
        image = next(iter(made[0].findall(nodes.image)))
        image.replace_self(nodes.raw("", html, format="html"))
        return made


class ResultRole(SphinxRole):
    """``{result}`file/row/key:format```: one stored value in a sentence."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Return the value, or the words that it was not measured."""
        folder = Path(self.env.srcdir) / "benchmarks/results"
        try:
            text = results.value(self.text, folder)
        except results.ResultsError as error:
            message = self.inliner.reporter.error(str(error), line=self.lineno)
            return [nodes.inline("", self.text)], [message]
        if text in results.ABSENT:
            return [nodes.emphasis("", text)], []
        return [nodes.inline("", text, classes=["kw-result"])], []


DIRECTIVES = {
    "exercise": ExerciseBox,
    "hints": Hints,
    "solution": Solution,
    "results": Results,
    "questions": Questions,
    "dropdown": Dropdown,
    "figure": Drawing,
}
