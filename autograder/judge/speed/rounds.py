"""The order of a trial: peer, learner, peer, ... until the ratio is known.

Nothing here knows processes or GPUs: a ``Supervisor`` runs the turns, and tests put a
made-up one in its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

from autograder.judge.speed.bands import straddles
from kernelwright.measure.interval import Interval, median_interval

DRIFT = 0.05
"""A peer that changes by more than this around a turn voids the round."""

PRECISE = 0.02
LEAST_ROUNDS = 7
"""Six samples are the fewest whose range is a 95% interval of the median."""

MOST_ROUNDS = 60
SETTLING_TURNS, CALM_TURNS = 3, 5

_CONTROL_TURNS = 20
_NOISY = 0.2


@dataclass(frozen=True)
class LearnerTurn:
    """One turn of the learner's code.

    Args:
        seconds: by the supervisor's clock, from the word *go* until the outputs
            were sealed, less the overhead of a turn.
        events_s: what device events said inside the learner's process.
    """

    seconds: float
    events_s: float | None = None


class Supervisor(Protocol):
    """Runs turns. A turn calls the work as often for the peer as for the learner."""

    def now(self) -> float:
        """Return the supervisor's monotonic clock, in seconds."""

    def peer(self) -> float:
        """Run a turn of the peer and return its seconds."""

    def admit(self) -> None:
        """Start the learner's process and warm it up."""

    def learner(self) -> LearnerTurn:
        """Run a turn of the learner's code on fresh inputs, and verify it."""

    def dismiss(self) -> None:
        """End the learner's process and all that it started."""


@dataclass(frozen=True)
class Round:
    """A learner's turn between two of the peer.

    Args:
        before, after: seconds of the peer's turns around it.
        turn: the learner's turn.
    """

    before: float
    turn: LearnerTurn
    after: float

    @property
    def ratio(self) -> float:
        """The peer's time over the learner's."""
        return (self.before + self.after) / 2 / self.turn.seconds

    def drift(self, calm: float) -> float:
        """Return how far the peer strayed: across the round, or from its calm."""
        across = abs(self.after - self.before) / min(self.after, self.before)
        slower = max(self.before, self.after) / calm - 1
        return max(across, slower)


@dataclass
class Trial:
    """All that was measured in one trial.

    Args:
        calm: the peer's turn before the learner's process existed.
        end: its turn after that process was gone.
        kept: rounds that count.
        voided: rounds in which the peer drifted.
        control: the peer's turns without the learner's process, taken where most
            rounds were void: do they drift too?
    """

    calm: float
    end: float = 0.0
    kept: list[Round] = field(default_factory=list)
    voided: list[Round] = field(default_factory=list)
    control: list[float] = field(default_factory=list)

    @property
    def interval(self) -> Interval:
        """The median ratio and its interval."""
        return median_interval([one.ratio for one in self.kept])

    @property
    def unsettled(self) -> bool:
        """Whether the peer itself changed from beginning to end."""
        return abs(self.end - self.calm) / min(self.end, self.calm) > DRIFT

    @property
    def disturbed(self) -> bool:
        """Whether most rounds were void."""
        return len(self.voided) > len(self.kept)

    @property
    def noisy(self) -> bool:
        """Whether the peer drifts without the learner's process as well."""
        steps = list(pairwise(self.control))
        drifts = sum(max(a, b) / min(a, b) - 1 > DRIFT for a, b in steps)
        return drifts > len(steps) * _NOISY


def run_trial(
    supervisor: Supervisor,
    bands: Mapping[str, float],
    *,
    budget_s: float,
    extended_s: float | None = None,
) -> Trial:
    """Run turns until the ratio is known to 2%, or the time is up.

    Args:
        supervisor: runs the turns.
        bands: where the interval must not straddle a band, rounds go on for the
            extended time.
        budget_s: seconds for the rounds.
        extended_s: seconds for them where a band is open; twice ``budget_s``
            unless given.
    """
    trial = Trial(_calm(supervisor))
    try:
        supervisor.admit()
        start = supervisor.now()
        extended = 2 * budget_s if extended_s is None else extended_s
        before = supervisor.peer()
        while not _enough(trial, bands, supervisor.now() - start, budget_s, extended):
            turn = supervisor.learner()
            after = supervisor.peer()
            one = Round(before, turn, after)
            strayed = one.drift(trial.calm) > DRIFT
            (trial.voided if strayed else trial.kept).append(one)
            before = after
    finally:
        supervisor.dismiss()
    trial.end = _calm(supervisor)
    if trial.disturbed:
        trial.control = [supervisor.peer() for _ in range(_CONTROL_TURNS)]
    return trial


def _calm(supervisor: Supervisor) -> float:
    """Return the peer's turn, after some that are not looked at."""
    for _ in range(SETTLING_TURNS):
        supervisor.peer()
    return median_interval([supervisor.peer() for _ in range(CALM_TURNS)]).median


def _enough(
    trial: Trial,
    bands: Mapping[str, float],
    elapsed: float,
    budget_s: float,
    extended_s: float,
) -> bool:
    """Decide whether to stop: precise and on one side of every band, or late."""
    done = len(trial.kept)
    if elapsed >= extended_s or done + len(trial.voided) >= MOST_ROUNDS:
        return True
    if done < LEAST_ROUNDS:
        return elapsed >= budget_s
    found = trial.interval
    if straddles(found.low, found.high, bands):
        return False
    return found.half_width <= PRECISE or elapsed >= budget_s
