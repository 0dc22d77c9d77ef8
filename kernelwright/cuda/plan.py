"""A signature's plan: the plain launch, checked and packed in a few steps.

``arguments.py`` takes everything that a kernel may be given, and says of the rest
what is wrong with it; that costs two microseconds an argument, more than the driver's
own launch. A plan knows from the signature what plain arguments look like: contiguous
torch tensors of the right type, Python numbers in range. It packs these into one
buffer and declines all else, which then takes the long way to its bytes or its error.
"""

from __future__ import annotations

import ctypes
import struct
from typing import Any, NamedTuple

import torch

from kernelwright.cuda.ctypes_map import (
    ELEMENTS,
    SCALARS,
    ScalarType,
    alignment,
    pack_scalar,
)
from kernelwright.cuda.signature import Parameter, Signature

# Exactly these: a subclass may have an answer of its own to every question.
_PLAIN = frozenset((torch.Tensor, torch.nn.Parameter))
_NUMBERS: dict[str, frozenset[type]] = {
    "int": frozenset((int,)),
    "float": frozenset((float, int)),
    "bool": frozenset((bool,)),
}
# What lies behind void* and behind a struct of the author's own. A complex tensor may
# be a conjugate that was never computed: the long way asks.
_ANY = tuple(
    found
    for found in vars(torch).values()
    if isinstance(found, torch.dtype) and not found.is_complex
)
# Every parameter starts a word of its own, which satisfies each type here.
_WORD = 8


class Buffer:
    """The parameters of one launch, and the pointers to them that the driver reads.

    Args:
        count: parameters.
    """

    __slots__ = ("_pointers", "address", "data")

    def __init__(self, count: int) -> None:
        self.data = ctypes.create_string_buffer(_WORD * max(1, count))
        begin = ctypes.addressof(self.data)
        self._pointers = (ctypes.c_void_p * max(1, count))(
            *(begin + _WORD * number for number in range(count))
        )
        self.address = ctypes.addressof(self._pointers)


class _Slot(NamedTuple):
    """What is plain for one parameter.

    Args:
        types: Python types of the value.
        dtypes: of a pointer, what the tensor may hold.
        misaligned: of a pointer, the bits of an address that must be 0.
        half: of a 16-bit float, its type: ``struct`` rounds it in another way.
    """

    types: frozenset[type]
    dtypes: tuple[torch.dtype, ...] | None = None
    misaligned: int = 0
    half: ScalarType | None = None


class Plan:
    """How the plain arguments of one kernel are checked and packed.

    Args:
        slots: one a parameter.
        layout: the ``struct`` format of all parameters, a word each.
        device_type: ``cpu`` or ``cuda``, where tensors must lie.
    """

    def __init__(self, slots: tuple[_Slot, ...], layout: str, device_type: str) -> None:
        self._slots = slots
        self._layout = struct.Struct(layout)
        self._on_gpu = device_type == "cuda"
        # Taken by one launch at a time, from whatever thread; as many are made as
        # were ever in use at once.
        self._free: list[Buffer] = []

    @staticmethod
    def of(signature: Signature, device_type: str) -> Plan | None:
        """Plan a signature's launches; ``None`` where a parameter is no plain one."""
        slots = []
        layout = "<"
        for parameter in signature.parameters:
            planned = _slot(parameter)
            if planned is None:
                return None
            slot, code = planned
            slots.append(slot)
            layout += f"{code}{_WORD - struct.calcsize('<' + code)}x"
        return Plan(tuple(slots), layout, device_type)

    def pack(
        self, arguments: tuple[Any, ...]
    ) -> tuple[Buffer, torch.device | None] | None:
        """Check and pack the arguments, if all of them are plain.

        Args:
            arguments: whatever the kernel is given.

        Returns:
            The packed parameters, for ``release`` after the launch, and the tensors'
            device (``None``: there are no tensors); or ``None`` where an argument is
            not plain, right or wrong.
        """
        if len(arguments) != len(self._slots):
            return None
        try:
            found = self._words(arguments)
            if found is None:
                return None
            words, device = found
            buffer = self._take()
            try:
                self._layout.pack_into(buffer.data, 0, *words)
            except BaseException:
                self.release(buffer)
                raise
        except Exception:
            # No address, not strided, out of range: the long way knows what to say.
            return None
        return buffer, device

    def _words(
        self, arguments: tuple[Any, ...]
    ) -> tuple[list[Any], torch.device | None] | None:
        """Return what is packed for each argument, and the tensors' device."""
        device: torch.device | None = None
        words: list[Any] = []
        for value, (types, dtypes, misaligned, half) in zip(
            arguments, self._slots, strict=True
        ):
            if dtypes is None:
                if type(value) not in types:
                    return None
                words.append(value if half is None else pack_scalar(half, value))
                continue
            if value is None:
                words.append(0)
                continue
            if type(value) not in types or value.dtype not in dtypes:
                return None
            where = value.device
            if where != device:
                if device is not None:
                    return None
                if not (value.is_cuda if self._on_gpu else value.is_cpu):
                    return None
                device = where
            address = value.data_ptr()
            if address & misaligned or not value.is_contiguous() or value.is_neg():
                return None
            words.append(address)
        return words, device

    def _take(self) -> Buffer:
        """Return a buffer that no other launch holds."""
        try:
            return self._free.pop()
        except IndexError:
            return Buffer(len(self._slots))

    def release(self, buffer: Buffer) -> None:
        """Take a buffer back that the driver has read."""
        self._free.append(buffer)


def _slot(parameter: Parameter) -> tuple[_Slot, str] | None:
    """Return what is plain for a parameter, and the ``struct`` code of its value."""
    if parameter.pointer == 1:
        element = ELEMENTS.get(parameter.ctype)
        if element is None:
            return _Slot(_PLAIN, _ANY), "Q"
        return _Slot(_PLAIN, element.dtypes, alignment(element) - 1), "Q"
    scalar = SCALARS.get(parameter.ctype)
    if parameter.pointer or scalar is None:
        return None
    types = _NUMBERS[scalar.kind]
    if scalar.code in "eE":
        return _Slot(types, half=scalar), "2s"
    return _Slot(types), scalar.code
