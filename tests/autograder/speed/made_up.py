"""A supervisor with a made-up clock: turns take what a test says they take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from autograder.judge.speed.rounds import CALM_TURNS, SETTLING_TURNS, LearnerTurn

Seconds = Callable[[int], float]

SETTLED = SETTLING_TURNS + CALM_TURNS
"""A steady peer's turns before the learner's process is admitted, and after it."""


@dataclass
class MadeUpSupervisor:
    """Answers each turn with a number, and moves its clock on by it.

    Args:
        learner_s: seconds of the learner's turn with a number.
        peer_s: seconds of the peer's turn with a number.
        slowed: factor on the peer while the learner's process lives.
        events: what device events say, as a factor on the learner's time.
        overhead_s: what passes around each turn.
    """

    learner_s: Seconds = lambda turn: 0.010
    peer_s: Seconds = lambda turn: 0.010
    slowed: float = 1.0
    events: float = 1.0
    overhead_s: float = 0.0
    clock: float = 0.0
    alive: bool = False
    turns: list[str] = field(default_factory=list)

    def now(self) -> float:
        return self.clock

    def peer(self) -> float:
        number = self.turns.count("peer")
        self.turns.append("peer")
        seconds = self.peer_s(number) * (self.slowed if self.alive else 1.0)
        self.clock += seconds + self.overhead_s
        return seconds

    def admit(self) -> None:
        self.turns.append("admit")
        self.alive = True

    def learner(self) -> LearnerTurn:
        assert self.alive
        number = self.turns.count("learner")
        self.turns.append("learner")
        seconds = self.learner_s(number)
        self.clock += seconds + self.overhead_s
        return LearnerTurn(seconds, seconds * self.events)

    def dismiss(self) -> None:
        self.turns.append("dismiss")
        self.alive = False
