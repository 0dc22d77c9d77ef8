"""What the emulator's tests share: build a source, launch it on NumPy arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernelwright.emulator import Library

KERNELS = Path(__file__).parents[2] / "kernels"


class Launcher:
    """A built library whose launches take NumPy arrays and Python numbers."""

    def __init__(self, source: str, kernels: Sequence[str]) -> None:
        self.library = Library.build(source, filename="kernel.cu", kernels=kernels)

    def __call__(
        self,
        kernel: str,
        grid: Any,
        block: Any,
        *arguments: Any,
        shared: int = 0,
        deadline_s: float | None = 20.0,
    ) -> str:
        """Launch; an int is a C int, a float a C float, an array its address."""
        return self.library.launch(
            kernel,
            (grid,) if isinstance(grid, int) else grid,
            (block,) if isinstance(block, int) else block,
            shared,
            [_pack(argument) for argument in arguments],
            deadline_s=deadline_s,
        )


def _pack(argument: Any) -> Any:
    if isinstance(argument, np.ndarray):
        assert argument.flags.c_contiguous
        return ctypes.c_void_p(argument.ctypes.data)
    if isinstance(argument, bool | int):
        return ctypes.c_int(argument)
    if isinstance(argument, float):
        return ctypes.c_float(argument)
    return argument


@pytest.fixture
def build() -> Callable[..., Launcher]:
    """Return a function that builds a source, its kernels named behind it."""

    def make(source: str, *kernels: str) -> Launcher:
        return Launcher(source, kernels or ("k",))

    return make


@pytest.fixture
def kernel_file() -> Callable[[str], str]:
    """Return a function that reads a kernel of ``tests/kernels``."""

    def read(name: str) -> str:
        return (KERNELS / name).read_text()

    return read
