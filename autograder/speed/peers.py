"""What an answer is measured against, run on the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from autograder.exercise import Arguments

Turn = Callable[[], None]
_PAIRS = 2


def copy_turn(bytes_moved: int, calls: int, cache_bytes: int) -> Turn:
    """Return a turn that copies, moving as many bytes as the work must move.

    Half of the bytes are read and half are written. The buffers rotate, so that
    together they pass four caches.
    """
    half = max(16, bytes_moved // 2)
    pairs = max(_PAIRS, min(calls, 4 * cache_bytes // (2 * half) + 1))
    source = torch.randint(0, 256, (pairs, half), dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)

    def turn() -> None:
        for call in range(calls):
            target[call % pairs].copy_(source[call % pairs])
        torch.cuda.synchronize()

    return turn


def work_turn(run: Callable[[Arguments], object], sets: Sequence[Arguments]) -> Turn:
    """Return a turn that runs a library's version of the work on every set."""

    def turn() -> None:
        for arguments in sets:
            run(arguments)
        torch.cuda.synchronize()

    return turn
