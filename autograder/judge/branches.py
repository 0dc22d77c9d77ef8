"""Cells that are another program on the emulator than they are on a GPU.

Without a GPU the values come from one compiler's program and the machine code from the
other's. What is read in one says nothing of the other, unless they are the same: so a
cell's ``#if`` may ask only for names that it defines itself.
"""

from __future__ import annotations

import re

from kernelwright.emulator.source import mask

_SPLICE = re.compile(r"\\[ \t\r]*\n")
_DIRECTIVE = re.compile(r"^[ \t]*(?:#|%:)[ \t]*(\w+)(.*)$", re.MULTILINE)
_CONDITIONS = ("if", "ifdef", "ifndef", "elif", "elifdef", "elifndef")
_DEFAULT = re.compile(
    r"^[ \t]*#[ \t]*(ifndef[ \t]+([A-Za-z_]\w*))[ \t]*\n\s*#[ \t]*define[ \t]+\2\b",
    re.MULTILINE,
)
_ASKED = re.compile(
    r"^[ \t]*#[ \t]*(if(n?)def[ \t]+([A-Za-z]\w*))[ \t]*$", re.MULTILINE
)
# As long as __FILE__: the text then has its name from no compiler.
_FILE, _NO_FILE = re.compile(r"\b__FILE__\b"), '"answer"'
_NAME = re.compile(r"\b[A-Za-z_]\w*")
_DEFINED = re.compile(r"\s*([A-Za-z_]\w*)(\([^)]*\))?(.*)", re.DOTALL)
_WORDS = frozenset(("defined", "true", "false", "and", "or", "not"))
# Names between two pairs of underscores are a compiler's; these are CUDA's own.
_COMPILERS = re.compile(r"\b(?:__\w*__|KWEMU\w*|kwemu)\b")
_CUDAS = frozenset(
    f"__{name}__"
    for name in (
        *("global", "device", "host", "shared", "constant", "managed", "restrict"),
        *("launch_bounds", "maxnreg", "cluster_dims", "grid_constant", "block_size"),
        *("align", "noinline", "forceinline", "inline", "inline_hint", "volatile"),
        *("asm", "attribute", "func", "LINE"),
    )
)


def with_defaults(source: str) -> str:
    """Let a constant that a cell guards by ``#ifndef`` be what the cell says.

    Nobody else has named it, so the guard is always open; written ``#if 1`` it is open
    for every compiler, whatever its headers define. All characters keep their places.
    """
    text = mask(source)
    for guard in reversed([*_DEFAULT.finditer(text)]):
        first = re.search(rf"#[ \t]*define[ \t]+{guard[2]}\b", text)
        if first and first.start() > guard.start():
            begin, end = guard.span(1)
            source = source[:begin] + "if 1".ljust(end - begin) + source[end:]
    return _without_switches(source)


def _without_switches(source: str) -> str:
    """Leave what a cell has for debugging out: a name like DEBUG that nobody defines.

    For every compiler, whatever its headers define; ``__FILE__`` is one text for all.
    """
    text = mask(source)
    defined = set(re.findall(r"#[ \t]*define[ \t]+(\w+)", text))
    edits = [
        (*asked.span(1), "if 1" if asked[2] else "if 0")
        for asked in _ASKED.finditer(text)
        if asked[3] not in defined and not _COMPILERS.fullmatch(asked[3])
    ]
    edits += [(*found.span(), _NO_FILE) for found in _FILE.finditer(text)]
    for begin, end, new in edits:
        source = source[:begin] + new.ljust(end - begin) + source[end:]
    return source


def two_programs(source: str) -> str:
    """Say on which line a CUDA C++ cell asks which compiler it is; '' if nowhere."""
    # Every character keeps its place, so that its line can be told.
    text = mask(_SPLICE.sub(lambda found: " " * len(found[0]), source))
    own: set[str] = set()
    for directive in _DIRECTIVE.finditer(text):
        word, rest = directive[1], directive[2]
        if word == "define" and (found := _DEFINED.match(rest)):
            parameters = set(_NAME.findall(found[2] or ""))
            if set(_NAME.findall(found[3])) <= own | parameters | _WORDS:
                own.add(found[1])
        elif word in _CONDITIONS and not set(_NAME.findall(rest)) <= own | _WORDS:
            return _told(source, directive.start(), directive[0].strip())
    for name in _COMPILERS.finditer(text):
        if name[0] not in _CUDAS:
            return _told(source, name.start(), name[0])
    return ""


def _told(source: str, at: int, what: str) -> str:
    shown = " ".join(what.split())[:80]
    return (
        f"line {source.count(chr(10), 0, at) + 1}: `{shown}` asks which compiler it "
        "is, and the emulator then runs another program than a GPU would: without a "
        "GPU neither can be judged by the other. Write one program for both; an #if "
        "may ask for names that the cell defines itself."
    )
