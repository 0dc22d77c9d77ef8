"""Where a traced launch's tensors lie: guards that cost addresses and no memory."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from kernelwright.trace.memory import GUARD, GuardedMemory

_M_PERTURB = -6


@pytest.fixture
def filling_malloc() -> Iterator[None]:
    """Have malloc fill what it hands out, as it does where answers are judged."""
    libc = ctypes.CDLL(None)
    libc.mallopt(_M_PERTURB, 0xA5)
    yield
    libc.mallopt(_M_PERTURB, 0)


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_guards_take_no_memory_where_malloc_fills(filling_malloc: None) -> None:
    tensors = [torch.arange(8.0) + i for i in range(4)]
    before = resident_bytes()
    memory = GuardedMemory([(i, f"t{i}", 4, False, t) for i, t in enumerate(tensors)])
    grown = resident_bytes() - before
    assert all(torch.equal(memory.copy_of(t), t) for t in tensors)
    # Five guards stand around four tensors; a huge page may hold each tensor.
    assert grown < GUARD
