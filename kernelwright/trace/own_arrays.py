"""Where a source indexes a thread's own arrays, as a compiler's message names places.

The compiler checks an index against its array without saying whose the array is. Only
the text tells: an array declared inside of a function and not ``__shared__`` or
``static`` is a thread's own. What this finds no declaration of (a struct's member, a
name from a macro) is left alone.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from kernelwright.emulator.source import ALIGNMENT, braces, mask, spaces

_NAME = r"[A-Za-z_]\w*"
_STORAGE = "__shared__|__constant__|__device__|__managed__|static|extern|thread_local"
_SPECIFIER = (
    rf"(?:{_STORAGE}|const|constexpr|volatile|unsigned|signed|struct|typename)\b"
)
_TEMPLATE = r"<(?:[^<>;{}]|<(?:[^<>;{}]|<[^<>;{}]*>)*>)*>"
# A declaration up to its first declarator: `const unsigned long long `, `wmma::f<a> `.
_HEAD = re.compile(
    rf"\s*(?P<head>(?:(?:{_SPECIFIER}|{ALIGNMENT.pattern})\s*)*"
    rf"(?P<type>{_NAME})(?:\s*{_TEMPLATE})?(?:\s*::\s*{_NAME}(?:\s*{_TEMPLATE})?)*"
    rf"(?:\s+(?:const|volatile|int|long|short|char|double|unsigned|{_STORAGE})\b)*)"
    rf"(?:\s+|[\s*&]+)(?={_NAME})"
)
_NO_TYPE = re.compile(
    "case|delete|else|goto|namespace|new|return|template|throw|typedef|using"
)
_DECLARATOR = re.compile(rf"[\s*&]*(?:(?:const|__restrict__)\s+)*(?P<name>{_NAME})")
_DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\n|[^\n])*", re.MULTILINE)
_STORES = re.compile(r"(?:\s*\.\s*\w+)*\s*(?:(?:[-+*/%&|^]|<<|>>)?=(?!=)|\+\+|--)")
_STEPS = re.compile(r"(?:\+\+|--)\s*$")
_NEAR = 80  # so far before a name it is looked at what is done to it
# An address is no access: `&v[8]`, but not `a & v[8]` or `a && v[8]`.
_ADDRESS_OF = re.compile(r"(?:^|[^\s\w)\]&])\s*&\s*$|\breturn\s*&\s*$")
_OPEN, _CLOSE = "([{", ")]}"


@dataclass(frozen=True)
class Subscript:
    """One subscript of a thread's own array, as it stands in the source.

    Args:
        line, column: of one of its brackets; columns count bytes, from 1.
        name: of the array.
        of: what is indexed, as written: ``tile``, or ``tile[row]``.
        unit: what the array has there, rows or elements.
        did: what is done to it.
    """

    line: int
    column: int
    name: str
    of: str
    unit: str
    did: str


@dataclass(frozen=True)
class _Array:
    """An array declared in a function: where its name stands, how far it is known."""

    name: str
    at: int
    end: int
    dimensions: int
    own: bool


@lru_cache(maxsize=64)
def own_subscripts(source: str) -> tuple[Subscript, ...]:
    """List the subscripts of threads' own arrays, in the order of the text.

    Each is there twice, by its opening bracket, which g++ names where it fills in a
    template, and by its closing one, which it names elsewhere.

    A row's end may be passed on purpose, from the first row on: what is written
    ``tile[0][i]`` goes through all of a matrix, and ``i`` is not listed.
    """
    text = _DIRECTIVE.sub(spaces, mask(source))
    arrays = [array for array in _arrays(text) if array.dimensions]
    if not any(array.own for array in arrays):
        return ()
    starts = [0, *(match.end() for match in re.finditer("\n", source))]
    names = "|".join(sorted({array.name for array in arrays if array.own}))
    found: list[Subscript] = []
    for use in re.finditer(rf"(?<![\w.])(?<!->)(?<!::)(?:{names})\b", text):
        array = _meant(arrays, use.group(), use.start())
        if array is None or not array.own or array.at == use.start():
            continue
        chain = list(_brackets(text, use.end()))
        begin = use.start()
        if not chain or _ADDRESS_OF.search(text, max(0, begin - _NEAR), begin):
            continue
        did = _did(text, begin, chain[-1][1] + 1)
        of = array.name
        for place, (opened, closed) in enumerate(chain[: array.dimensions]):
            if not place or not re.fullmatch(r"\w+(?:\[0\])+", of):
                unit = "rows" if place + 1 < array.dimensions else "elements"
                for bracket in (opened, closed):
                    line = bisect_right(starts, bracket)
                    column = len(source[starts[line - 1] : bracket].encode()) + 1
                    found.append(Subscript(line, column, array.name, of, unit, did))
            of += f"[{' '.join(text[opened + 1 : closed].split())}]"
    # Inside of a bracket there may be another array's.
    return tuple(sorted(found, key=lambda each: (each.line, each.column)))


def _meant(arrays: list[_Array], name: str, at: int) -> _Array | None:
    """Return the array that a name stands for: of those known there the innermost."""
    known = [a for a in arrays if a.name == name and a.at <= at < a.end]
    return max(known, key=lambda array: array.at, default=None)


def _did(text: str, begin: int, end: int) -> str:
    """Say what an expression does to the element that it names."""
    stores = _STORES.match(text, end) or _STEPS.search(
        text, max(0, begin - _NEAR), begin
    )
    return "writes" if stores else "reads"


def _arrays(text: str) -> Iterator[_Array]:
    """List what functions declare as an array, in a text without comments."""
    scopes: list[tuple[bool, int]] = []  # whether it is code, and where it ends
    ends, _ = braces(text)
    begin = 0
    for match in re.finditer(r"[{};]", text):
        at, sign = match.start(), match.group()
        if sign == "{":
            scopes.append((_is_code(text[begin:at]), ends.get(at, len(text))))
        elif sign == "}" and scopes:
            scopes.pop()
        begin = at + 1
        if scopes and scopes[-1][0]:
            yield from _declared(text, begin, scopes[-1][1])


def _is_code(head: str) -> bool:
    """Whether a brace opens statements, by what stands before it."""
    if re.search(r"\bnamespace\b|\bextern\s*\"", head):
        return False
    plain = ALIGNMENT.sub(" ", head)
    return not re.search(r"\b(?:struct|class|union|enum)\b[^()]*$", plain)


def _declared(text: str, begin: int, end: int) -> Iterator[_Array]:
    """List the arrays of one statement, if it is a declaration.

    Args:
        text: of the whole source.
        begin: where the statement begins.
        end: where the scope around it does.
    """
    head = _HEAD.match(text, begin, end)
    if head is None or _NO_TYPE.fullmatch(head["type"]):
        return
    own = not re.search(rf"\b(?:{_STORAGE})\b", head["head"])
    at = head.end()
    while (declarator := _DECLARATOR.match(text, at, end)) is not None:
        brackets = list(_brackets(text, declarator.end()))
        name = declarator["name"]
        yield _Array(name, declarator.start("name"), end, len(brackets), own)
        at = _next_comma(text, brackets[-1][1] + 1 if brackets else declarator.end())
        if at < 0:
            return


def _brackets(text: str, at: int) -> Iterator[tuple[int, int]]:
    """List the pairs of brackets that follow each other from a place on."""
    while (opening := re.compile(r"\s*\[").match(text, at)) is not None:
        begin = opening.end() - 1
        end = _closing(text, begin)
        if end < 0:
            return
        yield begin, end
        at = end + 1


def _closing(text: str, begin: int) -> int:
    """Return where the bracket that opens at a place is closed, -1 if nowhere."""
    depth = 0
    for at in range(begin, len(text)):
        depth += (text[at] in _OPEN) - (text[at] in _CLOSE)
        if depth == 0:
            return at
    return -1


def _next_comma(text: str, at: int) -> int:
    """Return where a declaration's next declarator begins, -1 if there is none."""
    depth = 0
    while at < len(text):
        depth += (text[at] in _OPEN) - (text[at] in _CLOSE)
        if depth < 0 or (depth == 0 and text[at] == ";"):
            return -1
        if depth == 0 and text[at] == ",":
            return at + 1
        at += 1
    return -1
