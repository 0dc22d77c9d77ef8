"""The gate's turns in one process: no worker, no memory shared, no switch between.

Memory, sets, peer and launch are the gate's (``Stand``). What differs from a
benchmark is then the number of sets alone, and ``few`` leaves that difference away.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

import kernelwright as kw
from autograder.exercise import Exercise
from autograder.speed.bands import against_copy
from autograder.speed.court import _PART_OF_MEMORY, TURN_S
from autograder.speed.peers import Turn, copy_turn, run_turn, work_turn
from autograder.speed.stand import Stand
from autograder.worker.places import read_scalar
from benchmarks._gate_court import SEED, WARMED, Heard, cells_of

FEW = 2

WAYS = {
    "here": "in one process, on new inputs",
    "here_again": f"in one process, after {WARMED} turns on the same inputs",
    "here_few": f"in one process, {FEW} sets again and again",
    "bench": "as the benchmark does: kw.bench, torch's memory",
}


@dataclass
class Here:
    """One exercise's stand, and the reference's kernel beside it.

    Args:
        stand: the gate's.
        kernel: the reference, with its launch.
        sets: what each call takes.
    """

    stand: Stand
    kernel: Callable[..., object]
    sets: Sequence[Sequence[Any]]

    @staticmethod
    def of(exercise: Exercise) -> Here:
        """Build the stand and compile the reference."""
        assert exercise.speed is not None
        stand = Stand.build(
            exercise,
            SEED,
            target_s=TURN_S,
            by_copy=against_copy(exercise.speed, known=True),
            part=_PART_OF_MEMORY,
        )
        launch = stand.problem.launch
        assert launch is not None
        (cell,) = cells_of(exercise)
        kernel = kw.cuda.compile(cell["source"], name="cell.cu")[exercise.name]
        ready = kernel[launch.grid, launch.block, launch.shared]
        return Here(stand, ready, _arguments(stand))

    def turn(self, sets: Sequence[Sequence[Any]]) -> Turn:
        """Return a turn that launches once for each of some sets."""

        def run() -> None:
            for own in sets:
                self.kernel(*own)

        return run

    def close(self) -> None:
        """Give the stand's memory back; nothing that views it may be used again."""
        torch.cuda.synchronize()
        address = ctypes.c_uint64(self.stand.memory.data_ptr())
        code = ctypes.CDLL("libcuda.so.1").cuMemFree_v2(address)
        assert code == 0, f"cuMemFree: {code}"
        torch.cuda.empty_cache()

    def few_peer(self) -> Turn:
        """Return the peer's turn on as few sets as ``here_few`` has."""
        stand = self.stand
        speed = stand.exercise.speed
        assert speed is not None
        if against_copy(speed, known=True):
            moved = speed.bytes_moved(speed.case)
            memory = stand.memory[: FEW * stand.layout.stride]
            return copy_turn(memory, moved, stand.calls)
        assert speed.run_peer is not None
        sets = [stand.arguments(call % FEW) for call in range(stand.calls)]
        return work_turn(speed.run_peer, sets)


def _arguments(stand: Stand) -> list[list[Any]]:
    """Return each call's arguments in order, outputs too, as the worker has them."""
    constant = stand.constant_scalars()
    assert constant is not None, "scalars differ from call to call"
    scalars: dict[str, Any] = {k: read_scalar(v) for k, v in constant.items()}
    found = []
    for call in range(stand.calls):
        views = {
            place.name: stand.layout.view(stand.memory, call, place)
            for place in stand.layout.places
        }
        every = {**scalars, **views}
        found.append([every[name] for name in stand.layout.order if name in every])
    return found


def rounds_here(here: Here, way: str, rounds: int) -> Iterator[Heard]:
    """Run rounds in one way; the peer's turns are beside the solution's."""
    few = way == "here_few"
    sets = here.sets
    own = here.turn([sets[c % FEW] for c in range(len(sets))] if few else sets)
    peer = here.few_peer() if few else here.stand.work
    for number in range(rounds):
        before, beside = _timed(here, peer)
        if not few:
            here.stand.refresh(number + 1)
        for _ in range({"here": 0, "here_again": WARMED, "here_few": 1}[way]):
            run_turn(own)
        events, span = _timed(here, own)
        after, _ = _timed(here, peer)
        yield Heard(span[1] - span[0], events, before, after, span, beside)


def _timed(here: Here, turn: Turn) -> tuple[float, tuple[float, float]]:
    """Run a turn after the gate's wake; return its seconds by events, and when."""
    run_turn(here.stand.wake)
    begin = time.monotonic()
    events = run_turn(turn)
    return events, (begin, time.monotonic())


def as_benchmarked(here: Here, rounds: int, seconds: float = 0.05) -> Iterator[Heard]:
    """Time one call on torch's own memory, as benchmarks do; the peer likewise."""
    stand = here.stand
    speed = stand.exercise.speed
    assert speed is not None
    given = [v.clone() if isinstance(v, torch.Tensor) else v for v in here.sets[0]]
    if against_copy(speed, known=True):
        half = speed.bytes_moved(speed.case) // 2
        pair = [torch.randint(0, 256, (half,), dtype=torch.uint8, device="cuda")]
        peer: Callable[..., object] = torch.Tensor.copy_
        told: list[Any] = [torch.empty_like(pair[0]), pair[0]]
    else:
        peer, told = speed.run_peer, [stand.arguments(0)]  # type: ignore[assignment]
    for _ in range(rounds):
        found = []
        for run, arguments in ((peer, told), (here.kernel, given), (peer, told)):
            begin = time.monotonic()
            timing = kw.bench(run, *arguments, seconds=seconds, device="cuda")
            span = (begin, time.monotonic())
            found.append((timing.median_ms / 1e3 * stand.calls, span))
        (before, beside), (own, span), (after, _) = found
        yield Heard(own, own, before, after, span, beside)
