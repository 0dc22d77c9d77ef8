"""CUDA C++ on the CPU: the same source that NVRTC compiles, one fiber a CUDA thread.

A source goes through ``source.py`` (the few things that C++ has no form for) and the
host's compiler with the headers of ``native/include``, and becomes a shared library
whose entries ``library.py`` launches. ``native/runtime`` runs it: workers, fibers,
barriers, signals. ``faults.py`` says in words how a launch ended.

This is the fast build, which records nothing. A build that records every access would
be a second prelude and a second runtime over the same headers: all that a kernel does
beside plain loads and stores goes through what ``native/include/kwemu/abi.h`` declares.
"""

from __future__ import annotations

from pathlib import Path

from kernelwright.emulator.library import Library
from kernelwright.emulator.toolchain import WRAPPERS

__all__ = ["Library", "include_dir", "warm_up"]


def include_dir() -> Path:
    """Return the folder to put on an include path, so that ``<kw/…>`` is found."""
    return WRAPPERS


def warm_up() -> None:
    """Compile what every kernel needs, and run one, so that the next is quick."""
    library = Library.build("__global__ void k() {}", filename="k.cu", kernels=["k"])
    library.launch("k", (1,), (32,), 0, [])
