"""Slips of the pen that compile: said beside a verdict, they explain it at once."""

from __future__ import annotations

import re

from kernelwright.emulator.source import mask
from kernelwright.trace.own_arrays import own_subscripts

# An empty while is how one waits; an empty if or for is hardly ever meant.
_HEAD = re.compile(r"\b(if|for)\s*\(")
# One = that is no part of ==, <=, >=, != or of an assigning operator such as +=.
_ASSIGNS = re.compile(r"(?<![=!<>+\-*/%&|^])=(?!=)")
# A variable of a thread's own; shared ones are watched by the trace, and what stands in
# global memory begins as 0.
_LOCAL = re.compile(
    r"(?:^|[;{}])\s*(?:unsigned\s+)?(?:float|double|int|unsigned|__half)\s+([^;{}()]*);"
)

# A cell may be a flood of heads: nobody reads more of them, nor one that is longer.
_MOST, _FAR = 8, 300
_INDEX = r"\[[^\[\]]*\]"


def slips(source: str) -> list[str]:
    """Name what a CUDA C++ cell says and hardly means, on its own lines."""
    text = mask(source)
    found: list[str] = []
    closed = _closed(text)
    for head in _HEAD.finditer(text):
        if (end := closed.get(head.end() - 1)) is None or len(found) == _MOST:
            break  # what is never closed no compiler takes
        word, near = head[1], head.start() + _FAR
        inside = text[head.end() : min(end, near)]
        ends = text[end + 1 : end + _FAR].lstrip().startswith(";")
        stores = word == "if" and ";" not in inside and _ASSIGNS.search(inside)
        if not ends and not stores:
            continue
        line = source.count("\n", 0, head.start()) + 1
        shown = " ".join(source[head.start() : min(end + 1, near)].split())[:80]
        if ends:
            what = "the if" if word == "if" else "the loop"
            found.append(
                f"line {line}: the ; right behind `{shown}` ends {what}: what follows "
                "is no part of it. Remove that ;."
            )
        if stores:
            found.append(
                f"line {line}: `{shown}` stores a value, it does not compare: to "
                "compare, write ==."
            )
    return found + _begun_with_nothing(text, source) + _shared_with_nobody(text, source)


def _shared_with_nobody(text: str, source: str) -> list[str]:
    """Name threads' own arrays that each thread indexes by its own number."""
    found: list[str] = []
    for name in dict.fromkeys(use.name for use in own_subscripts(source)):
        by_thread = rf"\b{name}\s*(?:{_INDEX}\s*)*?(?=\[[^\[\]]*\bthreadIdx\b){_INDEX}"
        use = re.search(by_thread, text)
        elsewhere = re.search(rf"\b__shared__\b[^;]*\b{name}\b", text)
        if use and not elsewhere and "__syncthreads" in text:
            line = source.count("\n", 0, use.start()) + 1
            found.append(
                f"line {line}: `{name}` is declared without __shared__: each thread "
                "has one of its own, and finds in it what it stored itself. What a "
                "block shares is declared __shared__."
            )
    return found


def _begun_with_nothing(text: str, source: str) -> list[str]:
    """Name locals that are declared with no value, and whose first use takes it."""
    found: list[str] = []
    for declared in _LOCAL.finditer(text):
        for name in declared[1].split(","):
            name = name.strip()
            if not name.isidentifier():
                continue
            use = re.search(rf"(?<![\w.>]){name}\b\s*([^;]*)", text[declared.end() :])
            if use and _made_of_itself(name, use[1]):
                line = source.count("\n", 0, declared.start(1)) + 1
                found.append(
                    f"line {line}: `{name}` is declared with no value, and what is "
                    "first done with it takes one: it begins with whatever its "
                    "register held. Say where it begins: a sum = 0, a maximum = "
                    "-INFINITY."
                )
    return found


def _made_of_itself(name: str, rest: str) -> bool:
    """Say whether a name's first use, up to the next ``;``, takes its own value."""
    if rest.startswith(("+=", "-=", "*=", "++")):
        return True
    if not re.match(r"=(?!=)", rest):
        return False
    depth, end = 0, len(rest)
    for at, sign in enumerate(rest):
        depth += {"(": 1, ")": -1}.get(sign, 0)
        if sign == "," and not depth:
            end = at  # another expression begins
            break
    return bool(re.search(rf"(?<![\w.>]){name}\b", rest[:end]))


def _closed(text: str) -> dict[int, int]:
    """Return where each parenthesis that is opened is closed."""
    opened: list[int] = []
    closed: dict[int, int] = {}
    for sign in re.finditer(r"[()]", text):
        if sign.group() == "(":
            opened.append(sign.start())
        elif opened:
            closed[opened.pop()] = sign.start()
    return closed
