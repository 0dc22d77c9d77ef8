"""CUDA C++ cells coloured as CUDA C++."""

from __future__ import annotations

from typing import ClassVar

from docutils import nodes
from pygments.lexer import inherit
from pygments.lexers.c_like import CudaLexer
from pygments.token import Name
from sphinx.transforms import SphinxTransform


class CudaCellLexer(CudaLexer):
    """CUDA C++ below a line with the cell's magic."""

    name = "CUDA C++ cell"
    aliases: ClassVar[list[str]] = ["cuda-cell"]
    tokens: ClassVar = {
        "root": [(r"\A%%cuda[^\n]*\n?", Name.Decorator), inherit],
    }


class CudaCells(SphinxTransform):
    """Set the language of each code cell that begins with ``%%cuda``."""

    default_priority = 210

    def apply(self, **kwargs: object) -> None:
        """Walk over the code of one page."""
        for block in self.document.findall(nodes.literal_block):
            if block.astext().startswith("%%cuda"):
                block["language"] = "cuda-cell"
