"""Which torch dtype stands behind which C type, and how scalars become bytes."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class ElementType:
    """What a pointer to a C type may point to.

    Args:
        dtypes: torch dtypes whose elements have this type; the first is the one
            that a message proposes.
        lanes: how many of those elements one C value holds (4 for ``float4``).
        size: bytes of one C value; the pointer must be aligned to it.
    """

    dtypes: tuple[torch.dtype, ...]
    lanes: int
    size: int


@dataclass(frozen=True)
class ScalarType:
    """How a Python number becomes a C scalar.

    Args:
        kind: ``int``, ``float`` or ``bool``.
        code: the ``struct`` code; ``E`` stands for bfloat16.
        low, high: the range of an integer type.
    """

    kind: str
    code: str
    low: int = 0
    high: int = 0


def _integer(code: str) -> ScalarType:
    bits = 8 * struct.calcsize(code)
    if code.isupper():
        return ScalarType("int", code, 0, 2**bits - 1)
    return ScalarType("int", code, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


SCALARS: dict[str, ScalarType] = {
    "bool": ScalarType("bool", "?"),
    "char": _integer("b"),
    "signed char": _integer("b"),
    "unsigned char": _integer("B"),
    "short": _integer("h"),
    "unsigned short": _integer("H"),
    "int": _integer("i"),
    "unsigned int": _integer("I"),
    "long": _integer("q"),
    "unsigned long": _integer("Q"),
    "long long": _integer("q"),
    "unsigned long long": _integer("Q"),
    "float": ScalarType("float", "f"),
    "double": ScalarType("float", "d"),
    "__half": ScalarType("float", "e"),
    "__nv_bfloat16": ScalarType("float", "E"),
}

# torch has few unsigned kernels, so a signed tensor may stand for unsigned memory.
_BYTES = (torch.int8, torch.uint8)
_SHORTS = (torch.int16, torch.uint16)
_INTS = (torch.int32, torch.uint32)
_LONGS = (torch.int64, torch.uint64)
_FLOATS: dict[str, torch.dtype] = {
    "float": torch.float32,
    "double": torch.float64,
    "__half": torch.float16,
    "__nv_bfloat16": torch.bfloat16,
    "__nv_fp8_e4m3": torch.float8_e4m3fn,
    "__nv_fp8_e5m2": torch.float8_e5m2,
}


def _elements() -> dict[str, ElementType]:
    table = {
        name: ElementType((dtype,), 1, dtype.itemsize)
        for name, dtype in _FLOATS.items()
    }
    table["bool"] = ElementType((torch.bool,), 1, 1)
    for names, signed_first in (
        (("char", "signed char", "unsigned char"), _BYTES),
        (("short", "unsigned short"), _SHORTS),
        (("int", "unsigned int"), _INTS),
        (("long", "unsigned long", "long long", "unsigned long long"), _LONGS),
    ):
        for name in names:
            dtypes = signed_first[::-1] if "unsigned" in name else signed_first
            table[name] = ElementType(dtypes, 1, dtypes[0].itemsize)
    table["unsigned char"] = ElementType((torch.uint8, torch.int8, torch.bool), 1, 1)
    vectors = {
        "float": ("float",),
        "double": ("double",),
        "char": ("char", "uchar"),
        "short": ("short", "ushort"),
        "int": ("int", "uint"),
        "long long": ("longlong", "ulonglong"),
    }
    for scalar, prefixes in vectors.items():
        one = table[scalar]
        for prefix in prefixes:
            for lanes in (2, 3, 4):
                size = one.size * lanes
                table[f"{prefix}{lanes}"] = ElementType(one.dtypes, lanes, size)
    table["__half2"] = ElementType((torch.float16,), 2, 4)
    table["__nv_bfloat162"] = ElementType((torch.bfloat16,), 2, 4)
    return table


ELEMENTS: dict[str, ElementType] = _elements()


def alignment(element: ElementType) -> int:
    """Return the alignment in bytes that the C type demands of a pointer to it."""
    # Three-lane vectors are three scalars in a row; the others align to their size.
    return element.size // 3 if element.lanes == 3 else min(element.size, 16)


def pack_scalar(scalar: ScalarType, value: int | float) -> bytes:
    """Turn a checked number into the bytes of its C type."""
    if scalar.code == "E":
        tensor = torch.tensor(float(value), dtype=torch.bfloat16).view(torch.int16)
        return struct.pack("<h", int(tensor))
    if scalar.code in "ef":
        # torch rounds to infinity where struct would refuse a large value.
        dtype = torch.float16 if scalar.code == "e" else torch.float32
        rounded = float(torch.tensor(float(value), dtype=torch.float64).to(dtype))
        return struct.pack(f"<{scalar.code}", rounded)
    if scalar.kind == "float":
        return struct.pack("<d", float(value))
    return struct.pack(f"<{scalar.code}", value)
