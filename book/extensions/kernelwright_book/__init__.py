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
from kernelwright_book.cuda import CudaCellLexer, CudaCells


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


def setup(app: Sphinx) -> dict[str, Any]:
    """Register everything with Sphinx."""
    app.add_config_value(
        "kernelwright_solutions", os.environ.get("SOLUTIONS", "1") != "0", "env", [bool]
    )
    # After myst-nb has made every custom format a source suffix: ours are only
    # another way to read files whose suffix is .md.
    app.connect("config-inited", read_chapters_with_ours, priority=900)
    app.add_node(
        directives.Folded,
        html=(directives.open_folded, directives.close_folded),
        latex=(_pass, _pass),
        text=(_pass, _pass),
    )
    for name, directive in directives.DIRECTIVES.items():
        app.add_directive(name, directive, override=True)
    app.add_role("result", directives.ResultRole())
    app.add_lexer("cuda-cell", CudaCellLexer)
    app.add_transform(CudaCells)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}


def _pass(visitor: object, node: nodes.Element) -> None:
    """Leave other builders to render the children as they are."""
