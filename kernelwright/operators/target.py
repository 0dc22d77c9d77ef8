"""Where a recording is repeated: on a GPU, or on the emulator."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol

import torch

from kernelwright.cuda.emulated import EmulatedProgram
from kernelwright.cuda.gpu import (
    GpuProgram,
    calls,
    enter,
    forget_device,
    known_device,
)
from kernelwright.operators.memory import Constant, Number, TensorMap
from kernelwright.operators.recorder import (
    Launch,
    kept_zeros,
)


class Target(Protocol):
    """What the text of a recording speaks of."""

    @property
    def device(self) -> int:
        """Its number; -1 for the CPU."""

    def head(self) -> list[str]:
        """Return the lines that make sure of the device."""

    def handle(self, launch: Launch) -> Any:
        """Return what stands for a kernel in a launch."""

    def names(
        self, again: Callable[..., Any], instead: Callable[..., Any]
    ) -> dict[str, Any]:
        """Return the functions that the text calls.

        Args:
            again: calls the text's function.
            instead: what was recorded.
        """


@dataclass(frozen=True)
class Gpu:
    """A GPU.

    Args:
        device: its number.
    """

    device: int

    def head(self) -> list[str]:
        """Go to the tensors' device, and tell the thread its context."""
        return [
            f"if current() != {self.device}: return elsewhere(a, n)",
            f"if thread.device != {self.device}: enter({self.device})",
        ]

    def handle(self, launch: Launch) -> int:
        """Return the driver's handle of a kernel."""
        if isinstance(launch.program, GpuProgram):
            return launch.program.handle(self.device, launch.kernel, launch.shared)
        return int(launch.program.function)

    def names(
        self, again: Callable[..., Any], instead: Callable[..., Any]
    ) -> dict[str, Any]:
        """Return the driver's and torch's functions."""

        def elsewhere(a: tuple[Any, ...], n: dict[str, Any]) -> Any:
            with torch.cuda.device(self.device):
                return again(a, n)

        def failed(error: Exception, a: tuple[Any, ...], n: dict[str, Any]) -> Any:
            # Another library took the thread's context away, or something is wrong
            # that the long way says in words.
            forget_device()
            return instead(*a, **n)

        found = calls()
        return {
            "current": found.device,
            "thread": known_device,
            "enter": enter,
            "elsewhere": elsewhere,
            "failed": failed,
            "launch": found.launch,
            "stream_of": found.stream,
            "empty": _empty(self.device),
            "zeros": kept_zeros,
            "move_map": _move_map(),
        }


@cache
def _empty(device: int) -> Callable[..., torch.Tensor]:
    # torch.compile's own: no dispatch, on the current device.
    found = getattr(torch._C._dynamo.guards, "_empty_strided_cuda", None)
    if found is not None:
        return found  # type: ignore[no-any-return]

    def empty(
        size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype
    ) -> torch.Tensor:
        where = torch.device("cuda", device)
        return torch.empty_strided(size, stride, dtype=dtype, device=where)

    return empty


@cache
def _move_map() -> Callable[[int, int], None]:
    replace = ctypes.CDLL("libcuda.so.1").cuTensorMapReplaceAddress
    replace.argtypes = (ctypes.c_void_p, ctypes.c_void_p)

    def move_map(place: int, address: int) -> None:
        if code := replace(place, address):
            raise RuntimeError(f"cuTensorMapReplaceAddress: error {code}")

    return move_map


@dataclass
class Emulated:
    """The emulator: nothing is saved, and every step can be tried without a GPU."""

    device: int = -1
    _launches: list[Launch] = field(default_factory=list)

    def head(self) -> list[str]:
        """Need nothing."""
        return []

    def handle(self, launch: Launch) -> int:
        """Return the launch's number."""
        assert isinstance(launch.program, EmulatedProgram)
        self._launches.append(launch)
        return len(self._launches) - 1

    def names(
        self, again: Callable[..., Any], instead: Callable[..., Any]
    ) -> dict[str, Any]:
        """Return what stands for the driver."""
        del again, instead

        def launch(number: int, *rest: int) -> None:
            grid, block, (shared, _, table, _) = rest[:3], rest[3:6], rest[6:]
            made = self._launches[number]
            sizes = [_size(parameter) for parameter in made.parameters]
            pointers = (ctypes.c_void_p * len(sizes)).from_address(table)
            packed = [
                ctypes.string_at(pointer, size)
                for pointer, size in zip(pointers, sizes, strict=True)
            ]
            made.program.launch(made.kernel, grid, block, shared, packed)

        def failed(error: Exception, a: tuple[Any, ...], n: dict[str, Any]) -> Any:
            raise error

        return {
            "launch": launch,
            "failed": failed,
            "stream_of": lambda device: 0,
            "empty": lambda size, stride, dtype: torch.empty_strided(
                size, stride, dtype=dtype
            ),
            "zeros": lambda device, stream, count: torch.zeros(
                count, dtype=torch.int32
            ),
        }


def _size(parameter: object) -> int:
    if isinstance(parameter, Constant):
        return len(parameter.data)
    if isinstance(parameter, Number):
        return struct.calcsize(parameter.code)
    return 128 if isinstance(parameter, TensorMap) else 8


def target_of(device: torch.device) -> Target:
    """Return where the tensors of a device are worked on."""
    return Gpu(device.index) if device.type == "cuda" else Emulated()
