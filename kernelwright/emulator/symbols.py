"""The variables of a compiled module, read from its ELF symbol table."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

_SYMBOL = struct.Struct("<IBBHQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_OBJECT, _TLS = 1, 6
_SYMBOL_TABLE = 2


@dataclass(frozen=True)
class Variable:
    """One variable of a module.

    Args:
        name: mangled.
        offset: from the load address; of a thread-local one, in its segment.
        size: in bytes.
        thread_local: whether every worker has its own, as of a ``__shared__`` one.
    """

    name: str
    offset: int
    size: int
    thread_local: bool


def variables_of(module: Path) -> tuple[Variable, ...]:
    """Read every variable with a size from a 64-bit little-endian ELF file."""
    data = module.read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        return ()
    table, count = struct.unpack_from("<Q", data, 0x28)[0], 0
    size, count = struct.unpack_from("<HH", data, 0x3A)
    sections = [_SECTION.unpack_from(data, table + i * size) for i in range(count)]
    found: list[Variable] = []
    for section in sections:
        if section[1] != _SYMBOL_TABLE:
            continue
        begin, length, names = section[4], section[5], sections[section[6]][4]
        for at in range(begin, begin + length, _SYMBOL.size):
            name, info, _, where, value, extent = _SYMBOL.unpack_from(data, at)
            if info & 15 not in (_OBJECT, _TLS) or not extent or not where:
                continue
            end = data.index(b"\0", names + name)
            text = data[names + name : end].decode(errors="replace")
            found.append(Variable(text, value, extent, info & 15 == _TLS))
    return tuple(found)
