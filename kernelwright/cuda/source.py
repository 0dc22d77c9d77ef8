"""Find the kernels of a CUDA C++ text without compiling it."""

from __future__ import annotations

import re
from dataclasses import dataclass

_SKIP = re.compile(
    r"""
      //[^\n]*                                  # line comment
    | /\*.*?\*/                                 # block comment
    | R"(?P<fence>[^()\\\s]{0,16})\(.*?\)(?P=fence)"   # raw string
    | "(?:\\.|[^"\\\n])*"                       # string
    | '(?:\\.|[^'\\\n])+'                       # character
    """,
    re.VERBOSE | re.DOTALL,
)
# A digit group such as 1'000'000 is no character literal.
_DIGIT_GROUP = re.compile(r"(?<=[0-9a-fA-F])'(?=[0-9a-fA-F])")
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", re.MULTILINE)
_TOKEN = re.compile(r"[A-Za-z_]\w*|::|[{}();<>=,]")
_ATTRIBUTES = {
    "__launch_bounds__",
    "__attribute__",
    "__cluster_dims__",
    "__block_size__",
    "__maxnreg__",
}


@dataclass(frozen=True)
class FoundKernel:
    """A ``__global__`` function: its qualified name, and whether it is a template."""

    name: str
    template: bool
    line: int


def blank(source: str) -> str:
    """Replace comments, strings and directives by spaces, keeping every line."""

    def spaces(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", match.group())

    text = _DIGIT_GROUP.sub(" ", source)
    return _DIRECTIVE.sub(spaces, _SKIP.sub(spaces, text))


def find_kernels(source: str) -> tuple[FoundKernel, ...]:
    """List the ``__global__`` functions of a source, in order.

    Kernels that a macro spells are not seen: name them to ``Module[...]`` instead.
    """
    text = blank(source)
    tokens = [(m.group(), m.start()) for m in _TOKEN.finditer(text)]
    found: dict[str, FoundKernel] = {}
    scopes: list[str | None] = []  # a namespace's name, or None for another brace
    statement = 0  # index of the token at which the current statement began
    for i, (token, position) in enumerate(tokens):
        if token == "{":
            scopes.append(_namespace(tokens, statement, i))
            statement = i + 1
        elif token == "}":
            if scopes:
                scopes.pop()
            statement = i + 1
        elif token == ";":
            statement = i + 1
        elif token == "__global__":
            name = _function_name(tokens, i + 1)
            if name is not None:
                qualified = "::".join([*(s for s in scopes if s), name])
                line = text.count("\n", 0, position) + 1
                template = tokens[statement][0] == "template"
                found.setdefault(qualified, FoundKernel(qualified, template, line))
    return tuple(found.values())


def _namespace(tokens: list[tuple[str, int]], start: int, brace: int) -> str | None:
    words = [token for token, _ in tokens[start:brace]]
    if "namespace" not in words:
        return None
    return "".join(words[words.index("namespace") + 1 :]) or None


def _function_name(tokens: list[tuple[str, int]], start: int) -> str | None:
    """Return the identifier before the parameter list, past any attributes."""
    i = start
    while i + 1 < len(tokens):
        word, following = tokens[i][0], tokens[i + 1][0]
        if word in (";", "{"):
            return None
        if following == "(" and word in _ATTRIBUTES:
            i = _past_parentheses(tokens, i + 1)
            continue
        if following == "(" and (word[0].isalpha() or word[0] == "_"):
            return word
        i += 1
    return None


def _past_parentheses(tokens: list[tuple[str, int]], opening: int) -> int:
    depth = 0
    for i in range(opening, len(tokens)):
        depth += {"(": 1, ")": -1}.get(tokens[i][0], 0)
        if depth == 0:
            return i + 1
    return len(tokens)
