"""What the course's book adds to Sphinx: exercises, results, CUDA cells, execution."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config

from autograder.authoring.chapters import chapter_files
from kernelwright_book import directives
from kernelwright_book.cuda import LEXERS, CompiledCells


def read_chapters_with_ours(app: Sphinx, config: Config) -> None:
    """Have each chapter read by the reader that runs it solved and shows its stubs."""
    root = Path(app.srcdir)
    for path in chapter_files(root / "chapters"):
        options = {
            "path": str(path),
            "timeout": config.nb_execution_timeout,
            "merge_streams": config.nb_merge_streams,
        }
        suffix = f"chapters/{path.name}"
        reader = ("kernelwright_book.reader.read", options, False)
        config.nb_custom_formats[suffix] = reader


def leave_thebe_out(
    app: Sphinx,
    pagename: str,
    templatename: str,
    context: dict[str, Any],
    doctree: nodes.document | None,
) -> None:
    """Take Thebe's scripts and styles off a page.

    Jupyter Book always loads its extension, which declares a constant twice (an
    error in the console of every page) and names addresses outside of the book.
    """
    for key in ("script_files", "css_files"):
        context[key] = [
            file
            for file in context[key]
            if "thebe" not in str(file.filename or file.attributes.get("body", ""))
        ]


def leave_thebe_out_of_text(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Take Thebe's settings out of a page's text."""
    for raw in list(doctree.findall(nodes.raw)):
        text = raw.astext().strip()
        if "x-thebe-config" in text or text.startswith("<script>kernelName"):
            raw.parent.remove(raw)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register everything with Sphinx."""
    app.add_config_value(
        "kernelwright_solutions", os.environ.get("SOLUTIONS", "1") != "0", "env", [bool]
    )
    # After myst-nb has made every custom format a source suffix: ours are only
    # another way to read files whose suffix is .md.
    app.connect("config-inited", read_chapters_with_ours, priority=900)
    app.connect("html-page-context", leave_thebe_out, priority=900)
    app.connect("doctree-resolved", leave_thebe_out_of_text, priority=900)
    app.add_node(
        directives.Folded,
        html=(directives.open_folded, directives.close_folded),
        latex=(_pass, _pass),
        text=(_pass, _pass),
    )
    for name, directive in directives.DIRECTIVES.items():
        app.add_directive(name, directive, override=True)
    app.add_role("result", directives.ResultRole())
    for lexer in LEXERS.values():
        app.add_lexer(lexer.aliases[0], lexer)
    app.add_transform(CompiledCells)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}


def _pass(visitor: object, node: nodes.Element) -> None:
    """Leave other builders to render the children as they are."""
