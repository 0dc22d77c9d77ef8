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
from collections.abc import Callable
from functools import partial
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


Packed = tuple["Buffer", int | None]


class Plan:
    """How the plain arguments of one kernel are checked and packed.

    Args:
        slots: one a parameter.
        layout: the ``struct`` format of all parameters, a word each.
        device_type: ``cpu`` or ``cuda``, where tensors must lie.
    """

    def __init__(self, slots: tuple[_Slot, ...], layout: str, device_type: str) -> None:
        # Taken by one launch at a time, from whatever thread; as many are made as
        # were ever in use at once.
        self._free: list[Buffer] = []
        self._packed = _packer(slots, layout, device_type, self._free)
        self.release = self._free.append
        """Takes a buffer back that the driver has read."""

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

    def pack(self, arguments: tuple[Any, ...]) -> Packed | None:
        """Check and pack the arguments, if all of them are plain.

        Args:
            arguments: whatever the kernel is given.

        Returns:
            The packed parameters, for ``release`` after the launch, and the number of
            the tensors' GPU (``None``: there are no tensors on one); or ``None`` where
            an argument is not plain, right or wrong.
        """
        try:
            return self._packed(*arguments)
        except Exception:
            # Too many, no address, not strided, out of range: the long way knows what
            # to say.
            return None


def _packer(
    slots: tuple[_Slot, ...], layout: str, device_type: str, free: list[Buffer]
) -> Callable[..., Packed | None]:
    """Write the function that checks and packs for one signature.

    A loop over the parameters would take twice as long.
    """
    space: dict[str, Any] = {
        "PLAIN": _PLAIN,
        "pack_scalar": pack_scalar,
        "free": free,
        "make": partial(Buffer, len(slots)),
        "write": struct.Struct(layout).pack_into,
    }
    lines = ["where = None"]
    for number, slot in enumerate(slots):
        value, wanted = f"a{number}", f"w{number}"
        space[wanted] = slot.types if slot.dtypes is None else slot.dtypes
        if slot.dtypes is None:
            lines.append(f"if {value}.__class__ not in {wanted}: return None")
            if slot.half is not None:
                space[f"h{number}"] = slot.half
                lines.append(f"{value} = pack_scalar(h{number}, {value})")
            continue
        lines += [
            f"if {value} is None: {value} = 0",
            "else:",
            f"    if {value}.__class__ not in PLAIN: return None",
            f"    if {value}.dtype not in {wanted}: return None",
            f"    if not {value}.is_contiguous() or {value}.is_neg(): return None",
            f"    if not {value}.is_{device_type}: return None",
        ]
        if device_type == "cuda":
            lines += [
                f"    at = {value}.get_device()",
                "    if at != where and where is not None: return None",
                "    where = at",
            ]
        lines.append(f"    {value} = {value}.data_ptr()")
        if slot.misaligned:
            lines.append(f"    if {value} & {slot.misaligned}: return None")
    names = "".join(f", a{number}" for number in range(len(slots)))
    lines += [
        "try: buffer = free.pop()",
        "except IndexError: buffer = make()",
        f"try: write(buffer.data, 0{names})",
        "except BaseException:",
        "    free.append(buffer)",
        "    raise",
        "return buffer, where",
    ]
    text = "\n    ".join([f"def packed({names.removeprefix(', ')}):", *lines])
    exec(compile(text, "<packed arguments>", "exec"), space)
    found: Callable[..., Packed | None] = space["packed"]
    return found


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
