"""CUDA C++ on the CPU: the same source that NVRTC compiles, one fiber a CUDA thread."""

from __future__ import annotations

from pathlib import Path

from kernelwright.emulator.library import Library
from kernelwright.emulator.toolchain import WRAPPERS

__all__ = ["Library", "include_dir"]


def include_dir() -> Path:
    """Return the folder to put on an include path, so that ``<kw/…>`` is found."""
    return WRAPPERS
