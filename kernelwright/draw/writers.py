"""Which thread wrote which element: found by running each thread alone.

The kernel is compiled for the emulator with a second entry behind it, which lets
one thread of the launch through. What that thread alone changes in a poisoned
output is what it writes, past the ends included. Kernels whose threads need one
another (barriers, shuffles, atomics) are not for this.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kernelwright.cuda import Kernel, Launcher, compile
from kernelwright.errors import ArgumentError

MOST_THREADS = 256
MOST_ELEMENTS = 512
# Elements before and behind the output in which a wild write is still seen.
MARGIN = 256
_POISON = 0xA7
_ENTRY = "kw_one_thread"


@dataclass(frozen=True)
class Writes:
    """What each thread of a launch wrote.

    Args:
        blocks: how many blocks.
        threads: how many threads in each.
        elements: how many elements the output has.
        by_thread: indices written, one tuple a thread, blocks one after another.
            Below 0 and from ``elements`` on they lie outside the output.
        output: name of the parameter, as messages call it.
    """

    blocks: int
    threads: int
    elements: int
    by_thread: tuple[tuple[int, ...], ...]

    @property
    def writers(self) -> dict[int, list[int]]:
        """The threads that wrote each element, by its index."""
        found: dict[int, list[int]] = {}
        for thread, indices in enumerate(self.by_thread):
            for index in indices:
                found.setdefault(index, []).append(thread)
        return found


def record_writes(launcher: Launcher, arguments: tuple[object, ...]) -> Writes:
    """Run every thread of a small one-dimensional launch alone, on the emulator.

    Args:
        launcher: ``kernel[grid, block]``.
        arguments: as for the launch itself; tensors are copied, none is changed.

    Raises:
        ArgumentError: a launch that is too large, has two dimensions, or a kernel
            without exactly one output.
    """
    blocks, threads = launcher.grid[0], launcher.block[0]
    total = blocks * threads
    if (*launcher.grid[1:], *launcher.block[1:]) != (1, 1, 1, 1):
        raise ArgumentError("the launch map is for launches in one dimension, x.")
    if total > MOST_THREADS:
        raise ArgumentError(
            f"the launch has {total:,} threads; a picture holds {MOST_THREADS}. Draw "
            "a small launch of the same kernel, such as kernel[2, 8]."
        )
    place = _output(launcher.kernel, arguments)
    given = [a.cpu() if isinstance(a, torch.Tensor) else a for a in arguments]
    output = given[place]
    assert isinstance(output, torch.Tensor)
    if output.numel() > MOST_ELEMENTS:
        raise ArgumentError(
            f"the output has {output.numel():,} elements; a picture holds "
            f"{MOST_ELEMENTS}. Draw a small array."
        )
    run = _one_thread_kernel(launcher.kernel)
    by_thread = []
    for thread in range(total):
        buffer, inner = _poisoned(output)
        given[place] = inner
        run[launcher.grid, launcher.block, launcher.shared](*given, thread)
        by_thread.append(_changed(buffer, output.element_size()))
    return Writes(blocks, threads, output.numel(), tuple(by_thread))


def _output(kernel: Kernel, arguments: tuple[object, ...]) -> int:
    parameters = kernel.signature.parameters
    if len(parameters) != len(arguments):
        raise ArgumentError(
            f"{kernel.name} takes {len(parameters)} arguments and was given "
            f"{len(arguments)}: {kernel.signature}"
        )
    places = [i for i, p in enumerate(parameters) if p.pointer and not p.const]
    if len(places) != 1 or not isinstance(arguments[places[0]], torch.Tensor):
        raise ArgumentError(
            f"{kernel.name} writes to {len(places)} of its parameters; the launch map "
            "shows kernels with one output tensor. Say const for the others."
        )
    return places[0]


def _one_thread_kernel(kernel: Kernel) -> Kernel:
    parameters = kernel.signature.parameters
    declared = "".join(f"{p} kw_a{i}, " for i, p in enumerate(parameters))
    passed = ", ".join(f"kw_a{i}" for i in range(len(parameters)))
    entry = f"""
__global__ void {_ENTRY}({declared}int kw_chosen) {{
    if (blockIdx.x * blockDim.x + threadIdx.x == kw_chosen) {kernel.name}({passed});
}}
"""
    return compile(kernel.source + entry, backend="emulator")[_ENTRY]


def _poisoned(output: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    size = output.element_size()
    length = (output.numel() + 2 * MARGIN) * size
    buffer = torch.full((length,), _POISON, dtype=torch.uint8)
    inner = buffer[MARGIN * size : length - MARGIN * size].view(output.dtype)
    return buffer, inner


def _changed(buffer: torch.Tensor, size: int) -> tuple[int, ...]:
    written = (buffer.view(-1, size) != _POISON).any(dim=1).nonzero().flatten()
    return tuple(int(index) - MARGIN for index in written)
