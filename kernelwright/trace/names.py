"""Names that the trace's reports use: parameters, shared variables, source lines."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence

from kernelwright.emulator.source import mask
from kernelwright.emulator.symbols import Variable
from kernelwright.trace.shapes import Shape, shape_of

_DYNAMIC = re.compile(
    r"\bextern\b[^;]*\b__shared__\b[^;]*?(\w+)\s*\[|"
    r"\b__shared__\b[^;]*\bextern\b[^;]*?(\w+)\s*\["
)
_LOOP = re.compile(r"\bfor\s*\(|(?<!\} )\bwhile\s*\(|\bdo\s*\{")
_ROLLED = re.compile(r"#\s*pragma\s+unroll\s*\(?\s*1\s*\)?\s*$")
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


def is_rolled(source: Sequence[str], line: int) -> bool:
    """Whether the innermost loop around a line stands behind ``#pragma unroll 1``."""
    text = mask("\n".join(source))
    starts = [0, *(m.end() for m in re.finditer("\n", text))]
    if not 0 < line <= len(starts):
        return False
    low, high = starts[line - 1], starts[line - 1] + len(source[line - 1])
    around = [m for m in _LOOP.finditer(text, 0, high) if _body_ends(text, m) > low]
    if not around:
        return False
    return _ROLLED.search(text[: around[-1].start()]) is not None


def _body_ends(text: str, loop: re.Match[str]) -> int:
    """Return where a loop's statement ends, whose head has been matched."""
    depth = 0
    for at in range(loop.end() - 1, len(text)):
        character = text[at]
        if character in "({":
            depth += 1
        elif character in ")}":
            depth -= 1
            if depth == 0 and character == "}":
                return at + 1
        elif character == ";" and depth == 0:
            return at + 1
    return len(text)


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

    def __init__(
        self,
        variables: Sequence[Variable],
        names: dict[str, str],
        shapes: Mapping[str, set[Shape]],
        elements: Mapping[str, int],
    ) -> None:
        self._shapes, self._elements = shapes, elements
        chosen = [
            (v.offset, v.size, names[v.name])
            for v in variables
            if v.thread_local and v.name in names
        ]
        self._found = sorted(chosen)
        self._starts = [offset for offset, *_ in self._found]

    def at(self, offset: int) -> tuple[str, int, int, int, Shape] | None:
        """Return the variable nearest to an offset.

        That is its name, the byte in it, its size, and where its declaration tells
        them the bytes of an element and its shape.

        Between two variables it is the one whose end or beginning is nearer.
        """
        if not self._found:
            return None
        after = bisect_right(self._starts, offset)
        near = self._found[max(after - 1, 0) : after + 1]
        start, size, name = min(
            near, key=lambda v: max(v[0] - offset, offset - sum(v[:2]))
        )
        shape, element = shape_of(size, self._shapes.get(name, set()))
        element = element if shape else self._elements.get(name, 0)
        return name, offset - start, size, element, shape
