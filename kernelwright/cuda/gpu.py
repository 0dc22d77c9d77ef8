"""Kernels on an NVIDIA GPU: a cubin from NVRTC, loaded and launched by CuPy."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from functools import cache, cached_property
from itertools import permutations
from typing import Any, NamedTuple

import torch

from kernelwright.cuda.backends import Dim3
from kernelwright.cuda.nvrtc import Cubin, compile_cubin
from kernelwright.cuda.plan import Plan
from kernelwright.cuda.signature import Signature
from kernelwright.errors import Diagnostic, LaunchError, ToolchainError

# Past this, a kernel's own shared memory counted in, CUDA wants to be asked for more.
_SHARED_WITHOUT_ASKING = 48 * 1024


class GpuProgram:
    """The kernels of one source, compiled for the chip that torch's device is."""

    def __init__(self, source: str, filename: str, kernels: tuple[str, ...]) -> None:
        self._cubin = compile_cubin(
            source, filename=filename, kernels=kernels, arch=current_arch()
        )
        self.signatures = self._cubin.signatures
        self.remarks: tuple[Diagnostic, ...] = ()
        # By device and kernel: the driver's handle, and the most dynamic shared
        # memory that it has been asked for.
        self.functions: dict[tuple[int, str], tuple[int, int]] = {}

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
        # The driver copies the parameters before it returns, so these buffers need
        # to live no longer than the call.
        buffers = [ctypes.create_string_buffer(data, len(data)) for data in packed]
        pointers = (ctypes.c_void_p * max(1, len(buffers)))(
            *(ctypes.addressof(buffer) for buffer in buffers)
        )
        self.queue(kernel, grid, block, shared, ctypes.addressof(pointers), None)

    def launch_ranks(
        self,
        kernel: str,
        grid: Dim3,
        block: Dim3,
        shared: int,
        ranks: list[tuple[list[bytes], list[torch.Tensor]]],
    ) -> None:
        """Queue a kernel for each rank: on its tensors' device, on a stream of its own.

        What is queued later on the devices' current streams waits for all of them.
        """
        devices = [tensors[0].device for _, tensors in ranks]
        for one, other in permutations(set(devices), 2):
            _let_reach(one.index, other.index)
        streams = [torch.cuda.Stream(device) for device in devices]
        # Before the first launch: the second one may not wait for it.
        for stream, device in zip(streams, devices, strict=True):
            stream.wait_stream(torch.cuda.current_stream(device))
        for stream, (packed, _) in zip(streams, ranks, strict=True):
            with torch.cuda.stream(stream):
                self.launch(kernel, grid, block, shared, packed)
        for stream, device in zip(streams, devices, strict=True):
            torch.cuda.current_stream(device).wait_stream(stream)

    def plain(self, signature: Signature) -> PlainGpuLaunch | None:
        """Return the short way to launch a kernel, where its parameters allow one."""
        plan = Plan.of(signature, "cuda")
        return None if plan is None else PlainGpuLaunch(self, signature.name, plan)

    def queue(
        self,
        kernel: str,
        grid: Dim3,
        block: Dim3,
        shared: int,
        parameters: int,
        device: int | None,
    ) -> None:
        """Queue a kernel on torch's current stream of a device; it returns at once.

        Args:
            kernel: its name expression.
            grid: blocks along x, y, z.
            block: threads along x, y, z.
            shared: bytes of dynamic shared memory a block.
            parameters: address of the pointers to the packed parameters.
            device: number of the device; ``None`` for torch's current one.

        Raises:
            LaunchError: the driver refuses.
        """
        found = calls()
        current = found.device()
        if device is None:
            device = current
        elif device != current:
            with torch.cuda.device(device):
                self.queue(kernel, grid, block, shared, parameters, device)
            return
        known = known_device.device == device
        if not known:
            enter(device)
        function = self.handle(device, kernel, shared)
        stream = found.stream(device)
        try:
            found.launch(function, *grid, *block, shared, stream, parameters, 0)
        except Exception as error:  # CuPy's driver error, whose type is its own
            forget_device()
            if known and "CONTEXT" in str(error):
                # Another library took the thread's context away since it was told.
                self.queue(kernel, grid, block, shared, parameters, device)
                return
            raise self._explain(kernel, grid, block, shared, error) from error

    def handle(self, device: int, kernel: str, shared: int) -> int:
        """Return the driver's handle of a kernel whose blocks may have that memory."""
        found = self.functions.get((device, kernel))
        if found is None or shared > found[1]:
            found = self._prepare(device, kernel, shared)
        return found[0]

    def _prepare(self, device: int, kernel: str, shared: int) -> tuple[int, int]:
        """Load a kernel on a device, and ask for the shared memory of its blocks."""
        own = self._cubin.resources(kernel).shared_bytes
        key = (device, kernel)
        if key not in self.functions:
            # torch has made the primary context current; CuPy must be on it too.
            with _cupy().cuda.Device(device):
                raw = self._module.get_function(self._cubin.lowered[kernel])
                function = int(raw.kernel.ptr)
            self.functions[key] = (function, _SHARED_WITHOUT_ASKING - own)
        function, largest = self.functions[key]
        if shared > largest:
            driver = _cupy().cuda.driver
            attribute = driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            try:
                driver.funcSetAttribute(function, attribute, shared)
            except Exception as error:
                raise LaunchError(
                    f"{kernel} asks for {shared} bytes of dynamic shared memory, "
                    f"more than {torch.cuda.get_device_name(device)} gives a block: "
                    f"{shared_limit(device)} bytes, less the kernel's own {own}."
                ) from error
            self.functions[key] = (function, shared)
        return self.functions[key]

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


@cache
def _let_reach(device: int, peer: int) -> None:
    """Let one device's kernels reach another's memory."""
    runtime = _cupy().cuda.runtime
    with _cupy().cuda.Device(device):
        if not runtime.deviceCanAccessPeer(device, peer):
            raise LaunchError(f"GPU {device} cannot reach the memory of GPU {peer}.")
        try:
            runtime.deviceEnablePeerAccess(peer)
        except runtime.CUDARuntimeError as error:
            if "AlreadyEnabled" not in str(error):
                raise


class PlainGpuLaunch:
    """Launches one kernel with arguments that its plan takes as they are.

    Args:
        program: holds the kernel.
        kernel: its name expression.
        plan: its signature's.
    """

    __slots__ = ("_kernel", "_plan", "_program")

    def __init__(self, program: GpuProgram, kernel: str, plan: Plan) -> None:
        self._program = program
        self._kernel = kernel
        self._plan = plan

    def __call__(
        self, grid: Dim3, block: Dim3, shared: int, arguments: tuple[Any, ...]
    ) -> bool:
        """Launch on the tensors' device, or return false: see ``Plan.pack``."""
        ready = self._plan.pack(arguments)
        if ready is None:
            return False
        buffer, device = ready
        found, program = calls(), self._program
        try:
            function, most = program.functions[device, self._kernel]  # type: ignore[index]
            if (
                shared > most
                or known_device.device != device
                or found.device() != device
            ):
                raise LookupError
            stream = found.stream(device)
            found.launch(function, *grid, *block, shared, stream, buffer.address, 0)
        except Exception:
            # Not as it was the last time, or refused: with all care, then.
            address = buffer.address
            program.queue(self._kernel, grid, block, shared, address, device)
        finally:
            # The driver has copied the parameters.
            self._plan.release(buffer)
        return True


_NONE = -1


class _Thread(threading.local):
    """What one thread has told the CUDA runtime.

    Args:
        device: the device it was last told.
    """

    device = _NONE


known_device = _Thread()


def enter(device: int) -> None:
    """Tell the runtime this thread's device.

    A thread of its own (autograd runs backward in one) has no context until then.
    """
    calls().set_device(device)
    known_device.device = device


def forget_device() -> None:
    """Have the runtime told again, before this thread's next launch."""
    known_device.device = _NONE


class Calls(NamedTuple):
    """The functions that every launch calls, looked up once a process.

    Args:
        launch: the driver's, by CuPy.
        set_device: the runtime's, by CuPy.
        device: number of torch's current device on this thread.
        stream: handle of torch's current stream on a device.
    """

    launch: Callable[..., None]
    set_device: Callable[[int], None]
    device: Callable[[], int]
    stream: Callable[[int], int]


@cache
def calls() -> Calls:
    """Return the functions that every launch calls."""
    cuda = _cupy().cuda
    # Both of torch's faces for these two build objects and ask first whether CUDA is
    # there: 3 us, as much as the launch itself. A compiled program says that it is.
    return Calls(
        cuda.driver.launchKernel,
        cuda.runtime.setDevice,
        torch._C._cuda_getDevice,
        torch._C._cuda_getCurrentRawStream,
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
