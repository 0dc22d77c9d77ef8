"""A kernel that can be launched, and what can be asked of it."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernelwright.cuda.backends import Dim3
from kernelwright.cuda.signature import Signature
from kernelwright.errors import ArgumentError, LaunchError

if TYPE_CHECKING:
    from kernelwright.cuda.module import Module
    from kernelwright.cuda.nvrtc import Resources
    from kernelwright.trace.face import Tracer

_MOST_THREADS = 1024
_MOST_BLOCK = (1024, 1024, 64)
_MOST_GRID = (2**31 - 1, 65535, 65535)

GridLike = int | Sequence[int]


class Kernel:
    """One ``__global__`` function, ready to launch: ``kernel[grid, block](...)``.

    Args:
        module: what it was compiled in.
        expression: its C++ name, ``vector_add`` or ``tile<float, 16>``.
    """

    def __init__(self, module: Module, expression: str) -> None:
        self.module = module
        self.name = expression

    @property
    def source(self) -> str:
        """The whole text that the kernel was compiled from."""
        return self.module.source

    @property
    def signature(self) -> Signature:
        """The parameters and their C types, as the compiler resolved them."""
        return self.module.signature(self.name)

    def __getitem__(self, launch: tuple[Any, ...]) -> Launcher:
        """Choose grid, block and (optionally) bytes of dynamic shared memory."""
        if launch.__class__ is tuple and len(launch) == 2:
            # The common form first: all else is looked at closely.
            x, threads = launch
            if (
                x.__class__ is int
                and threads.__class__ is int
                and 1 <= x <= _MOST_GRID[0]
                and 1 <= threads <= _MOST_THREADS
            ):
                return Launcher(self, (x, 1, 1), (threads, 1, 1), 0)
        if not isinstance(launch, tuple) or len(launch) not in (2, 3):
            raise LaunchError(
                f"{self.name}[...] takes a grid and a block, and optionally bytes of "
                f"shared memory: {self.name}[blocks, threads](...). Got "
                f"{self.name}[{launch!r}]."
            )
        grid = _dim3(self.name, "grid", launch[0], _MOST_GRID)
        block = _dim3(self.name, "block", launch[1], _MOST_BLOCK)
        threads = block[0] * block[1] * block[2]
        if threads > _MOST_THREADS:
            raise LaunchError(
                f"{self.name}: a block of {block} has {threads} threads; a GPU takes "
                f"at most {_MOST_THREADS} in a block. Use a smaller block and more "
                "blocks."
            )
        shared = launch[2] if len(launch) == 3 else 0
        if not isinstance(shared, int) or shared < 0:
            raise LaunchError(
                f"{self.name}: shared memory is {shared!r}; wanted a whole number of "
                "bytes, 0 or more."
            )
        return Launcher(self, grid, block, shared)

    @property
    def on_ranks(self) -> RanksKernel:
        """Launch for several ranks: ``kernel.on_ranks[grid, block](of_0, of_1)``."""
        return RanksKernel(self)

    @property
    def trace(self) -> Tracer:
        """Record a launch: ``kernel.trace[grid, block](...)`` returns its report.

        Always on the emulator, with tensors on the CPU, whatever the kernel's back end.
        """
        from kernelwright.trace.face import Tracer

        return Tracer(self)

    def __call__(self, *arguments: Any) -> None:
        """Refuse a call without a launch, and say how it is written."""
        raise LaunchError(
            f"{self.name}(...) has no grid and no block. Say how many blocks and how "
            f"many threads in each: {self.name}[blocks, 256](...)."
        )

    def resources(self, arch: str = "sm_90") -> Resources:
        """Report registers, shared bytes and spills on a chip; needs no GPU."""
        return self.module.cubin(self.name, arch).resources(self.name)

    def sass(self, arch: str = "sm_90") -> str:
        """Disassemble the kernel's machine code for a chip; needs no GPU."""
        return self.module.cubin(self.name, arch).sass(self.name)

    def __repr__(self) -> str:
        return f"<Kernel {self.signature} on the {self.module.backend}>"


# Not frozen: one is made for every launch, and a frozen one takes thrice as long.
@dataclass(slots=True)
class Launcher:
    """A kernel with its grid and block chosen; call it with the arguments."""

    kernel: Kernel
    grid: Dim3
    block: Dim3
    shared: int

    def __call__(self, *arguments: Any, **named: Any) -> None:
        """Check the arguments against the signature and launch.

        Raises:
            ArgumentError: an argument that the kernel does not take.
            LaunchError: a launch that the machine refuses.
            KernelFault: on the emulator, what the kernel did wrong.
        """
        if named:
            raise ArgumentError(
                f"{self.kernel.name} takes its arguments by position, got "
                f"{', '.join(f'{name}=' for name in named)}: at a launch parameters "
                f"have no names.\n  signature: {self.kernel.signature}"
            )
        kernel = self.kernel
        kernel.module.launch(kernel.name, self.grid, self.block, self.shared, arguments)


@dataclass(frozen=True)
class RanksKernel:
    """A kernel of which each rank launches its own, all at the same time.

    Ranks are processors that reach each other's memory. On the emulator they run in
    this process; on GPUs each has a device of its own, or a stream where their tensors
    are on one. They wait for each other, so all blocks of all ranks run at once.
    """

    kernel: Kernel

    def __getitem__(self, launch: tuple[Any, ...]) -> RanksLauncher:
        """Choose a rank's grid and block, and bytes of dynamic shared memory."""
        return RanksLauncher(self.kernel[launch])


@dataclass(frozen=True)
class RanksLauncher:
    """A kernel with each rank's grid and block; call it with all ranks' arguments."""

    launcher: Launcher

    def __call__(self, *ranks: Sequence[Any]) -> None:
        """Launch with a list of arguments for each rank.

        Raises:
            ArgumentError: an argument that the kernel does not take.
            LaunchError: a launch that the machine refuses.
            KernelFault: on the emulator, what the kernel did wrong.
        """
        made = self.launcher
        name, module = made.kernel.name, made.kernel.module
        given = checked_ranks(name, ranks)
        module.launch_ranks(name, made.grid, made.block, made.shared, given)


def checked_ranks(kernel: str, ranks: Sequence[Any]) -> tuple[tuple[Any, ...], ...]:
    """Return each rank's arguments.

    Raises:
        ArgumentError: something that is no list of arguments.
    """
    if not ranks or not all(isinstance(each, (tuple, list)) for each in ranks):
        raise ArgumentError(
            f"{kernel}.on_ranks[...] takes a list of arguments for each rank: "
            f"{kernel}.on_ranks[blocks, 256]((x0, out0, n), (x1, out1, n))."
        )
    return tuple(map(tuple, ranks))


def _dim3(kernel: str, what: str, value: GridLike, most: Dim3) -> Dim3:
    """Read an int or up to three ints; say what is wrong with anything else."""
    if type(value) is int and 1 <= value <= most[0]:
        return (value, 1, 1)
    parts = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if not 1 <= len(parts) <= 3:
        raise LaunchError(
            f"{kernel}: the {what} has {len(parts)} dimensions; wanted 1 to 3."
        )
    try:
        sizes = [operator.index(part) for part in parts]
    except TypeError:
        raise LaunchError(
            f"{kernel}: the {what} is {value!r}; wanted whole numbers. To cover n "
            f"elements with blocks of b threads write (n + b - 1) // b."
        ) from None
    x, y, z = (*sizes, 1, 1)[:3]
    if 1 <= x <= most[0] and 1 <= y <= most[1] and 1 <= z <= most[2]:
        return (x, y, z)
    for axis, size, limit in zip("xyz", (x, y, z), most, strict=True):
        if size < 1:
            raise LaunchError(
                f"{kernel}: the {what} is {size} along {axis}; a launch needs at "
                "least 1. With nothing to do (n == 0), do not launch."
            )
        if size > limit:
            raise LaunchError(
                f"{kernel}: the {what} is {size} along {axis}; at most {limit}."
            )
    raise AssertionError("one axis is out of its range")
