"""Cells of CUDA C++ and of C++ coloured as what they are."""

from __future__ import annotations

from typing import ClassVar

from docutils import nodes
from pygments.lexer import inherit
from pygments.lexers.c_cpp import CppLexer
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


class CppCellLexer(CppLexer):
    """C++ below a line with the cell's magic."""

    name = "C++ cell"
    aliases: ClassVar[list[str]] = ["cpp-cell"]
    tokens: ClassVar = {
        "root": [(r"\A%%cpp[^\n]*\n?", Name.Decorator), inherit],
    }


LEXERS = {"%%cuda": CudaCellLexer, "%%cpp": CppCellLexer}


class CompiledCells(SphinxTransform):
    """Set the language of each code cell that begins with a magic of ours."""

    default_priority = 210

    def apply(self, **kwargs: object) -> None:
        """Walk over the code of one page."""
        for block in self.document.findall(nodes.literal_block):
            for magic, lexer in LEXERS.items():
                if block.astext().startswith(magic):
                    block["language"] = lexer.aliases[0]
