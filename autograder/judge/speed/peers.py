"""What an answer is measured against: turns that are put into the device's queue."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from autograder.exercise import Arguments

Turn = Callable[[], None]


def copy_turn(memory: torch.Tensor, bytes_moved: int, calls: int) -> Turn:
    """Return a turn that copies, moving as many bytes as the work must move.

    Half of the bytes are read and half are written, from one stretch of the memory
    to the next, around and around: a copy that kept to two buffers would find their
    pages in the GPU's translation caches, and the work on new inputs does not.

    Args:
        memory: bytes that may be overwritten; at least two stretches' worth.
        bytes_moved: by one call.
        calls: in a turn.
    """
    half = min(max(16, bytes_moved // 2), memory.numel() // 2) // 16 * 16
    stretches = memory.numel() // half
    pairs = [
        (_stretch(memory, half, 2 * call + 1, stretches),
         _stretch(memory, half, 2 * call, stretches))
        for call in range(calls)
    ]  # fmt: skip

    def turn() -> None:
        for target, source in pairs:
            target.copy_(source)

    return turn


def _stretch(
    memory: torch.Tensor, size: int, number: int, stretches: int
) -> torch.Tensor:
    """View a stretch of the memory; behind the last one comes the first."""
    begin = number % stretches * size
    return memory[begin : begin + size]


def work_turn(run: Callable[[Arguments], object], sets: Sequence[Arguments]) -> Turn:
    """Return a turn that runs a library's version of the work on every set."""

    def turn() -> None:
        for arguments in sets:
            run(arguments)

    return turn


def run_turn(turn: Turn) -> float:
    """Run a turn to its end; return its seconds by the device's events."""
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    turn()
    stop.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(stop)) / 1e3
