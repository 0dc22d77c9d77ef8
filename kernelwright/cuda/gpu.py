"""Kernels on an NVIDIA GPU: a cubin from NVRTC, loaded and launched by CuPy."""

from __future__ import annotations

import ctypes
from functools import cached_property
from typing import Any

import torch

from kernelwright.cuda.backends import Dim3
from kernelwright.cuda.nvrtc import Cubin, compile_cubin
from kernelwright.errors import LaunchError, ToolchainError

# Past this, a kernel's own shared memory counted in, CUDA wants to be asked for more.
_SHARED_WITHOUT_ASKING = 48 * 1024


class GpuProgram:
    """The kernels of one source, compiled for the chip that torch's device is."""

    def __init__(self, source: str, filename: str, kernels: tuple[str, ...]) -> None:
        self._cubin = compile_cubin(
            source, filename=filename, kernels=kernels, arch=current_arch()
        )
        self.signatures = self._cubin.signatures
        self._functions: dict[tuple[int, str], int] = {}
        self._largest: dict[tuple[int, str], int] = {}

    @cached_property
    def _module(self) -> Any:
        return _cupy().RawModule(path=str(self._cubin.path))

    @property
    def cubin(self) -> Cubin:
        """The machine code, for its resources and its SASS."""
        return self._cubin

    def launch(
        self, kernel: str, grid: Dim3, block: Dim3, shared: int, packed: list[bytes]
    ) -> None:
        """Queue a kernel on torch's current stream; it returns at once."""
        driver = _cupy().cuda.driver
        device = torch.cuda.current_device()
        # A thread of its own (autograd runs backward in one) has no context until
        # the runtime is told its device.
        _cupy().cuda.runtime.setDevice(device)
        function = self._function(device, kernel, shared)
        # The driver copies the parameters before launchKernel returns, so these
        # buffers need to live no longer than the call.
        buffers = [ctypes.create_string_buffer(data, len(data)) for data in packed]
        pointers = (ctypes.c_void_p * max(1, len(buffers)))(
            *(ctypes.addressof(buffer) for buffer in buffers)
        )
        stream = torch.cuda.current_stream(device).cuda_stream
        try:
            driver.launchKernel(
                function, *grid, *block, shared, stream, ctypes.addressof(pointers), 0
            )
        except Exception as error:  # CuPy's driver error, whose type is its own
            raise self._explain(kernel, grid, block, shared, error) from error

    def _function(self, device: int, kernel: str, shared: int) -> int:
        """Return the driver's handle on this device, with enough shared memory."""
        key = (device, kernel)
        if key not in self._functions:
            # torch has made the primary context current; CuPy must be on it too.
            with _cupy().cuda.Device(device):
                raw = self._module.get_function(self._cubin.lowered[kernel])
                self._functions[key] = int(raw.kernel.ptr)
            own = self._cubin.resources(kernel).shared_bytes
            self._largest[key] = _SHARED_WITHOUT_ASKING - own
        function = self._functions[key]
        if shared > self._largest[key]:
            driver = _cupy().cuda.driver
            attribute = driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            try:
                driver.funcSetAttribute(function, attribute, shared)
            except Exception as error:
                raise LaunchError(
                    f"{kernel} asks for {shared} bytes of dynamic shared memory, "
                    f"more than {torch.cuda.get_device_name(device)} gives a block: "
                    f"{shared_limit(device)} bytes, less the kernel's own "
                    f"{self._cubin.resources(kernel).shared_bytes}."
                ) from error
            self._largest[key] = shared
        return function

    def _explain(
        self, kernel: str, grid: Dim3, block: Dim3, shared: int, error: Exception
    ) -> LaunchError:
        resources = self._cubin.resources(kernel)
        threads = block[0] * block[1] * block[2]
        return LaunchError(
            f"{kernel}[{grid}, {block}, {shared}] could not be launched: {error}.\n"
            f"  it takes {resources.registers} registers a thread "
            f"({resources.registers * threads} a block; a block has 65,536) and "
            f"{resources.shared_bytes + shared} bytes of shared memory."
        )


def shared_limit(device: int) -> int:
    """Return the most shared memory, in bytes, that a block may ask for."""
    properties = torch.cuda.get_device_properties(device)
    return int(getattr(properties, "shared_memory_per_block_optin", 48 * 1024))


def current_arch() -> str:
    """Return the chip of torch's current device, such as ``sm_90``."""
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}"


def _cupy() -> Any:
    try:
        import cupy
    except ImportError as error:
        raise ToolchainError(
            "This machine has an NVIDIA GPU, and CuPy, which loads kernels on it, is "
            "not installed. Mend: `make setup`, or pip install cupy-cuda13x (or "
            "cupy-cuda12x for a CUDA 12 driver). KERNELWRIGHT_BACKEND=emulator runs "
            "kernels on the CPU meanwhile."
        ) from error
    return cupy
