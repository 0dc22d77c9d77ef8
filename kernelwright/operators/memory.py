"""The parameters of a recording's launches: one stretch of memory, addresses first.

What lies in it:

    words      addresses of tensors, and numbers that vary: written before a launch
    constants  all other parameters, tensor maps of TMA among them
    tables     a launch's: the addresses of its parameters, as the driver wants them
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

_WORD = 8
_MAP = 128  # bytes of a tensor map, which begins at a multiple of 64
_MAP_ALIGNMENT = 64


@dataclass(frozen=True)
class Address:
    """A parameter: the address of a tensor.

    Args:
        name: of the tensor in the recording.
        offset: bytes from its first element.
    """

    name: str
    offset: int = 0


@dataclass(frozen=True)
class Number:
    """A parameter that varies.

    Args:
        place: of the call's argument.
        code: how ``struct`` writes it.
    """

    place: int | str
    code: str


@dataclass(frozen=True)
class Constant:
    """A parameter that is the same in every call."""

    data: bytes


@dataclass(frozen=True)
class TensorMap:
    """A parameter that TMA reads: how a tensor lies in memory, and where.

    Args:
        data: 128 bytes as the driver made them.
        address: what changes from call to call.
    """

    data: bytes
    address: Address


Parameter = Address | Number | Constant | TensorMap


class Room:
    """Memory for the parameters of one call of a recording.

    Args:
        layout: says what lies where.
    """

    __slots__ = ("_memory", "base", "words")

    def __init__(self, layout: Layout) -> None:
        self._memory = ctypes.create_string_buffer(layout.size + _MAP_ALIGNMENT)
        begin = ctypes.addressof(self._memory)
        self.base = -(-begin // _MAP_ALIGNMENT) * _MAP_ALIGNMENT
        view = memoryview(self._memory).cast("B")
        self.words = view[self.base - begin :]
        self.words[: layout.size] = layout.initial
        for table, places in layout.tables.items():
            pointers = [self.base + place for place in places]
            struct.pack_into(f"<{len(pointers)}Q", self.words, table, *pointers)


@dataclass
class Layout:
    """Where each parameter of each launch lies within a room."""

    size: int = 0
    initial: bytes = b""
    tables: dict[int, list[int]] = field(default_factory=dict)
    _pieces: list[tuple[int, bytes]] = field(default_factory=list)

    def add(self, size: int, data: bytes = b"", alignment: int = _WORD) -> int:
        """Reserve bytes, and say what is in them at first; return their place."""
        place = -(-self.size // alignment) * alignment
        self.size = place + size
        self._pieces.append((place, data))
        return place

    def add_launch(
        self, parameters: list[Parameter], place_of: Callable[[Parameter], int]
    ) -> int:
        """Place a launch's parameters, and return where its table is.

        Args:
            parameters: in the order in which the kernel takes them.
            place_of: where a word or a tensor map lies.
        """
        places = [
            self.add(len(parameter.data), parameter.data)
            if isinstance(parameter, Constant)
            else place_of(parameter)
            for parameter in parameters
        ]
        table = self.add(_WORD * max(1, len(places)))
        self.tables[table] = places
        return table

    def add_map(self, parameter: TensorMap) -> int:
        """Place a tensor map."""
        return self.add(_MAP, parameter.data, _MAP_ALIGNMENT)

    def finish(self) -> None:
        """Put the constants together; nothing is added after."""
        memory = bytearray(self.size)
        for place, data in self._pieces:
            memory[place : place + len(data)] = data
        self.initial = bytes(memory)
