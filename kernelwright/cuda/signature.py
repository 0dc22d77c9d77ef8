"""A kernel's signature: its parameters and their C types, read from the compiler.

Both back ends hand over a demangled function type such as
``void (float const*, int)``: the types are the compiler's own, with every
``using``, template argument and macro resolved.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel.

    Args:
        ctype: the type without ``const`` and ``*``: ``float``, ``__half``.
        pointer: how many ``*`` it has; a kernel takes 0, 1, or 2 for a list of tensors.
        const: for a pointer, whether the kernel promises not to write.
    """

    ctype: str
    pointer: int
    const: bool

    def __str__(self) -> str:
        qualifier = "const " if self.const and self.pointer else ""
        return f"{qualifier}{self.ctype}{'*' * self.pointer}"


@dataclass(frozen=True)
class Signature:
    """The name of a kernel and its parameters, in order."""

    name: str
    parameters: tuple[Parameter, ...]

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.parameters))})"


def parse_signature(name: str, function_type: str) -> Signature:
    """Read a demangled function type.

    Args:
        name: the kernel's name expression, for messages.
        function_type: ``void (float const*, int)``; a ``(*)`` is allowed.
    """
    text = function_type.replace("(*)", "").strip()
    inside = text[text.index("(") + 1 : text.rindex(")")]
    parts = [part for part in _split(inside) if part and part != "void"]
    return Signature(name, tuple(_parameter(part) for part in parts))


def _split(text: str) -> list[str]:
    """Split at the commas outside angle brackets and parentheses."""
    parts, depth, current = [], 0, ""
    for character in text:
        depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append(current.strip())
            current = ""
        else:
            current += character
    return [*parts, current.strip()]


def _parameter(text: str) -> Parameter:
    pointer = text.count("*")
    # Before the first *: what stands behind it is about the pointer.
    const = bool(re.search(r"\bconst\b", text.partition("*")[0])) and pointer > 0
    bare = re.sub(r"\b(const|volatile|__restrict__|__restrict|struct)\b|\*", " ", text)
    return Parameter(" ".join(bare.split()), pointer, const)
