"""Device memory that two processes see: CUDA's own handles, through the driver.

The driver's library is called directly: neither torch nor CuPy hands out a handle
as plain bytes without a pickle around it.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import torch

HANDLE_BYTES = 64
_PAGE = 2 << 20
"""Bytes of the GPU's large pages."""
_LAZY_PEER_ACCESS = 1


class DriverError(Exception):
    """The CUDA driver refused."""


class _Handle(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_ubyte * HANDLE_BYTES)]


@cache
def _driver() -> Any:
    """Return the driver, with torch's context current on this thread."""
    torch.zeros(1, device="cuda")
    return ctypes.CDLL("libcuda.so.1")


def allocate(size: int) -> int:
    """Take device memory outside of torch's pool; only such can be exported whole.

    Whole large pages are taken. Memory that ends within one is slow for the process
    that opens its handle, as if all of it were mapped in small ones: on an H200, a sum
    read 50 GB at half of its speed there, and one down a matrix's columns at a third.
    """
    pointer = ctypes.c_uint64()
    whole = -(-size // _PAGE) * _PAGE
    _call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(whole))
    return pointer.value


def export(pointer: int) -> bytes:
    """Return the handle by which another process opens an allocation."""
    handle = _Handle()
    _call("cuIpcGetMemHandle", ctypes.byref(handle), ctypes.c_uint64(pointer))
    return bytes(handle.reserved)


def open_handle(handle: bytes) -> int:
    """Map another process's allocation into this one.

    Raises:
        DriverError: it cannot be shared here (WSL2 has no such handles), or the
            handle is not one.
    """
    if len(handle) != HANDLE_BYTES:
        raise DriverError(f"a handle has {HANDLE_BYTES} bytes, got {len(handle)}")
    pointer = ctypes.c_uint64()
    _call(
        "cuIpcOpenMemHandle_v2",
        ctypes.byref(pointer),
        _Handle.from_buffer_copy(handle),
        ctypes.c_uint(_LAZY_PEER_ACCESS),
    )
    return pointer.value


def close_handle(pointer: int) -> None:
    """Unmap what ``open_handle`` mapped."""
    _call("cuIpcCloseMemHandle", ctypes.c_uint64(pointer))


def extent(pointer: int) -> tuple[int, int]:
    """Return base and size of the allocation that a device pointer lies in."""
    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    _call(
        "cuMemGetAddressRange_v2",
        ctypes.byref(base),
        ctypes.byref(size),
        ctypes.c_uint64(pointer),
    )
    return base.value, size.value


class _Memory:
    """Device memory in the form that torch reads without copying."""

    def __init__(self, pointer: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (pointer, False),
            "version": 3,
        }


def as_bytes(pointer: int, size: int) -> torch.Tensor:
    """View device memory as a tensor of bytes; who owns it must outlive the view."""
    return torch.as_tensor(_Memory(pointer, size), device="cuda")


def _call(name: str, *arguments: Any) -> None:
    """Call the driver and raise what it says."""
    driver = _driver()
    code = getattr(driver, name)(*arguments)
    if code != 0:
        text = ctypes.c_char_p()
        driver.cuGetErrorString(code, ctypes.byref(text))
        said = (text.value or b"unknown error").decode()
        raise DriverError(f"{name}: {said} ({code})")
