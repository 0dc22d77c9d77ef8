"""The gate's own court, with turns that are prepared in other ways than the gate's."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from autograder.authoring.regions import cell_source
from autograder.exercise import Exercise
from autograder.speed import court as courts
from autograder.speed.court import GpuCourt
from autograder.speed.rounds import SETTLING_TURNS, LearnerTurn
from autograder.submission import code_of
from autograder.worker.wire import Header
from autograder.workers import ForkServer
from benchmarks import _gate_exercises

SEED = 20_261_122
WARMED = 3
"""Turns that are thrown away before the one that is timed."""

WHERE = Path(_gate_exercises.__file__)


class OpenCourt(GpuCourt):
    """A court of trusted code: its learner's turns are the reference solution's."""

    own_span = peer_span = (0.0, 0.0)
    """Monotonic begin and end of the last turn of each."""

    def _learner_turn(self, what: str) -> LearnerTurn:
        begin = time.monotonic()
        turn = super()._learner_turn(what)
        self.own_span = (begin, time.monotonic())
        return turn

    def _peer_turn(self) -> tuple[float, float]:
        begin = time.monotonic()
        found = super()._peer_turn()
        self.peer_span = (begin, time.monotonic())
        return found

    def prepared(self, *, touch: bool = False, before: int = 0) -> LearnerTurn:
        """Run a turn as ``learner`` does, less the check of its outputs.

        Args:
            touch: have the learner's process copy half of every set into its other
                half first: every page of its inputs is then one that its own context
                has just met. The numbers are lost, which costs no time.
            before: turns before it that are not timed, on the same inputs.
        """
        self._turn += 1
        self._demand(self._tell({"what": "load", "scalars": self._scalars()}))
        with self._held():
            self._order({"op": "refresh", "turn": self._turn})
            self._order({"op": "wake"})
        if touch:
            self._demand(self._tell({"what": "rehearse"}))
        for _ in range(before):
            self._demand(self._tell({"what": "turn"}))
        return self._learner_turn("turn")

    def settled_peer(self) -> float:
        """Run the peer until what was before it no longer counts; then once more."""
        for _ in range(SETTLING_TURNS):
            self.peer()
        return self.peer()


@dataclass(frozen=True)
class Heard:
    """One round: the learner's turn and the peer's around it, in seconds a turn.

    Args:
        learner: by the supervisor's clock; ``events`` by the device's.
        before, after: the peer's turns.
        own, beside: when the learner's turn ran, and the peer's before it.
    """

    learner: float
    events: float | None
    before: float
    after: float
    own: tuple[float, float]
    beside: tuple[float, float]


Way = Callable[[OpenCourt], LearnerTurn]
WAYS: dict[str, tuple[str, Way]] = {
    "gate": ("as the gate does", lambda court: court.learner()),
    "touched": (
        "pages touched by its own process first",
        lambda court: court.prepared(touch=True),
    ),
    "warmed": (
        f"after {WARMED} turns on the same inputs",
        lambda court: court.prepared(before=WARMED),
    ),
    "settled": ("peer settled before and after", lambda court: court.learner()),
    "small": ("as the gate does, on few sets", lambda court: court.learner()),
}


def rounds_of(court: OpenCourt, way: str, rounds: int) -> Iterator[Heard]:
    """Run rounds in one way, as ``hear`` runs them."""
    peer = court.settled_peer if way == "settled" else court.peer
    run = WAYS[way][1]
    for _ in range(rounds):
        before, beside = peer(), court.peer_span
        turn = run(court)
        own = court.own_span
        yield Heard(turn.seconds, turn.events_s, before, peer(), own, beside)


def cells_of(exercise: Exercise) -> list[Header]:
    """Return the reference solution as the worker's ``prepare`` takes it."""
    source = code_of(cell_source(exercise, solved=True))
    return [{"id": exercise.id, "language": exercise.language, "source": source}]


@contextlib.contextmanager
def opened(
    exercise: Exercise, server: ForkServer, part: float | None = None
) -> Iterator[OpenCourt]:
    """Open a court and admit the reference solution.

    Args:
        exercise: one of ``_gate_exercises``.
        server: forks the learner's process.
        part: share of the GPU's free memory that a turn's sets may take; the gate's
            own when absent.
    """
    own = courts._PART_OF_MEMORY
    if part is not None:
        courts._PART_OF_MEMORY = part
    try:
        court = OpenCourt(
            exercise, cells_of(exercise), seed=SEED, server=server, where=str(WHERE)
        )
    finally:
        courts._PART_OF_MEMORY = own
    try:
        court.admit()
        yield court
    finally:
        court.close()
