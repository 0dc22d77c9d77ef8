"""Names that the trace's reports use: parameters, shared variables, source lines."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence

from kernelwright.emulator.source import mask
from kernelwright.emulator.symbols import Variable

_DYNAMIC = re.compile(
    r"\bextern\b[^;]*\b__shared__\b[^;]*?(\w+)\s*\[|"
    r"\b__shared__\b[^;]*\bextern\b[^;]*?(\w+)\s*\["
)
_CONSTANT = re.compile(r"\b__constant__\b[^;={]*?(\w+)\s*(?:\[|=|;|\{)")


def parameter_names(source: str, kernel: str, count: int) -> list[str]:
    """Return the names of a kernel's parameters; a nameless one gets its position."""
    fallback = [f"argument {position + 1}" for position in range(count)]
    masked = mask(source)
    called = re.escape(kernel.split("<")[0].split("::")[-1])
    for match in re.finditer(rf"\b{called}\s*\(", masked):
        head = masked[: match.start()].rsplit(";", 1)[-1].rsplit("}", 1)[-1]
        if "__global__" not in head:
            continue
        parts = _parameters(masked, match.end())
        if len(parts) != count:
            continue
        names = [re.findall(r"\w+", part.split("=")[0]) for part in parts]
        return [
            words[-1] if len(words) > 1 else spare
            for words, spare in zip(names, fallback, strict=True)
        ]
    return fallback


def _parameters(text: str, start: int) -> list[str]:
    parts, depth, current = [], 0, ""
    for character in text[start:]:
        if character in "(<[{":
            depth += 1
        elif character in ")>]}":
            if depth == 0:
                break
            depth -= 1
        if character == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += character
    return [part for part in [*parts, current] if part.strip()]


def dynamic_name(source: str) -> str:
    """Return the name of the source's dynamic shared array."""
    match = _DYNAMIC.search(mask(source))
    return (match[1] or match[2]) if match else "dynamic shared memory"


def constant_names(source: str) -> set[str]:
    """Return the names of ``__constant__`` variables."""
    return set(_CONSTANT.findall(mask(source)))


def short_name(demangled: str) -> str:
    """Return a variable's own name: ``tile`` of ``k(float*)::tile``."""
    return re.sub(r"\s*\[abi:\w+\]$", "", demangled).rsplit("::", 1)[-1]


class SharedVariables:
    """The ``__shared__`` variables of a module, found by their place."""

    def __init__(self, variables: Sequence[Variable], names: dict[str, str]) -> None:
        chosen = [
            (v.offset, v.size, names[v.name])
            for v in variables
            if v.thread_local and v.name in names
        ]
        self._found = sorted(chosen)
        self._starts = [offset for offset, *_ in self._found]

    def at(self, offset: int) -> tuple[str, int] | None:
        """Return the variable at or nearest below an offset, and the distance."""
        place = bisect_right(self._starts, offset) - 1
        if place < 0:
            return None
        start, _, name = self._found[place]
        return name, offset - start
