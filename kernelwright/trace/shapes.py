"""The shapes and elements of shared arrays, read from their declarations.

An address in an array says how many bytes it lies behind the beginning; its author
thinks of rows and columns. What the text does not tell, such as an extent that a
template's parameter gives, is left alone.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Iterator
from math import prod

from kernelwright.emulator.source import ALIGNMENT, mask

Shape = tuple[int, ...]

_SHARED = re.compile(r"\b__shared__\b([^;{}]*);")
_ARRAY = re.compile(r"(\w+)\s*((?:\[[^\[\]]+\]\s*)+)")
_CONSTANT = re.compile(
    r"\b(?:constexpr|const)\s+(?:(?:static|unsigned|int|long|short|size_t|auto)\s+)+"
    r"([^;{}()]*?=[^;{}]*);"
)
_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+(\S.*)$", re.MULTILINE)
_ELEMENTS = (1, 2, 4, 8, 16)
_SIZES = {
    **dict.fromkeys(("char", "unsigned char", "signed char", "bool"), 1),
    **dict.fromkeys(("half", "__half", "__nv_bfloat16", "short", "unsigned short"), 2),
    **dict.fromkeys(("float", "int", "unsigned", "unsigned int", "half2"), 4),
    **dict.fromkeys(("double", "float2", "int2", "unsigned long long"), 8),
    **dict.fromkeys(("float4", "int4", "uint4"), 16),
}
_TYPED = re.compile(
    rf"\b__shared__\s+(?:(?:{ALIGNMENT.pattern})\s*)?"
    rf"(?P<type>(?:(?:un)?signed\s+)?(?:{'|'.join(s for s in _SIZES if ' ' not in s)}"
    r"|long\s+long)\b)(?P<names>[^;()={]*)"
)
_DEEPEST = 8  # of names that stand for names
_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.Mod: operator.mod,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}


def shapes_in(source: str) -> dict[str, set[Shape]]:
    """Return the shapes under which each shared array is declared, by its name."""
    text = mask(source)
    constants = _constants(text)
    found: dict[str, set[Shape]] = {}
    for declared in _SHARED.finditer(text):
        for name, extents in _ARRAY.findall(declared[1]):
            shape = tuple(
                _value(extent, constants)
                for extent in re.findall(r"\[([^\[\]]+)\]", extents)
            )
            found.setdefault(name, set()).add(shape if min(shape) > 0 else ())
    return found


def shared_elements(source: str) -> dict[str, int]:
    """Return the bytes of an element of each ``__shared__`` array of a known type."""
    found: dict[str, int] = {}
    for match in _TYPED.finditer(mask(source)):
        size = _SIZES.get(" ".join(match["type"].split()), 0)
        for name in re.findall(r"(?:^|,)\s*(\w+)\s*\[", match["names"]):
            # Two kernels may each have a `tile`.
            found[name] = size if found.get(name, size) == size else 0
    return found


def shape_of(size: int, declared: set[Shape]) -> tuple[Shape, int]:
    """Return an array's shape and the bytes of an element; () where none is sure.

    Args:
        size: bytes of the whole array.
        declared: the shapes under which its name is declared.
    """
    if len(declared) == 1:
        (shape,) = declared
        element, rest = divmod(size, prod(shape))
        if shape and not rest and element in _ELEMENTS:
            return shape, element
    return (), 1


def indices(shape: Shape, number: int) -> str:
    """Name an element by its indices: ``[1][0]`` of number 32 in 32 x 32."""
    named = ""
    for extent in reversed(shape[1:]):
        number, last = divmod(number, extent)
        named = f"[{last}]{named}"
    return f"[{number}]{named}"


def _constants(text: str) -> dict[str, str]:
    """List names that stand for a number all over the text, and what they stand for."""
    listed = [*_MACRO.findall(text), *_named(text)]
    meant: dict[str, set[str]] = {}
    for name, value in listed:
        meant.setdefault(name, set()).add(value.strip())
    return {name: values.pop() for name, values in meant.items() if len(values) == 1}


def _named(text: str) -> Iterator[tuple[str, str]]:
    """List what constants are declared to be."""
    for declared in _CONSTANT.finditer(text):
        starts = list(re.finditer(r"(?:^|,)\s*(\w+)\s*=", declared[1]))
        ends = [start.start() for start in starts[1:]]
        for start, end in zip(starts, [*ends, len(declared[1])], strict=True):
            yield start[1], declared[1][start.end() : end]


def _value(text: str, constants: dict[str, str]) -> int:
    """Return what an expression of whole numbers comes to; 0 where that is not told."""
    for _ in range(_DEEPEST):
        names = set(re.findall(r"\b[A-Za-z_]\w*", text))
        if not names:
            break
        if not names <= constants.keys():
            return 0
        text = re.sub(r"\b[A-Za-z_]\w*", lambda found: f"({constants[found[0]]})", text)
    try:
        parsed = ast.parse(re.sub(r"(?<=\d)[uUlL]+\b", "", text.strip()), mode="eval")
        return _computed(parsed.body)
    except (SyntaxError, ValueError, ZeroDivisionError):
        return 0


def _computed(node: ast.expr) -> int:
    """Compute an expression of whole numbers."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = _computed(node.left), _computed(node.right)
        if abs(left) < 1 << 31 and 0 <= right < 1 << 31 and not _too_far(node, right):
            return int(_OPERATORS[type(node.op)](left, right))
    raise ValueError("no expression of whole numbers")


def _too_far(node: ast.BinOp, by: int) -> bool:
    return isinstance(node.op, ast.LShift | ast.RShift) and by > 31
