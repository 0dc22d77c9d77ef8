"""One exercise on its way through the gates: what every gate is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from autograder.exercise import Case, Exercise
from autograder.judge.kinds import Kind, kind_of
from autograder.judge.results import Gate
from autograder.judge.trial import Cell, Deadlines, Tried, try_case
from autograder.supervisor.link import Worker
from autograder.supervisor.workers import ForkServer


@dataclass
class Run:
    """One exercise on its way through the gates.

    ``unfit`` holds what stands in the place of gates that this machine cannot judge.
    """

    exercise: Exercise
    cells: tuple[Cell, ...]
    server: ForkServer
    device: str
    seed: int
    public: bool
    deadlines: Deadlines
    speed_budget_s: float
    unfit: Mapping[str, Gate] = field(default_factory=dict)
    cases: list[tuple[str, bool]] = field(default_factory=list)
    printed: str = ""
    kernels: list[Any] = field(default_factory=list)
    counted: dict[str, float] = field(default_factory=dict)

    @property
    def kind(self) -> Kind:
        """The kind of answer that the exercise asks for."""
        return kind_of(self.exercise)

    def spawn(self) -> Worker:
        """Start a fresh worker for the answer."""
        return self.server.spawn(loopback=self.kind.loopback)

    def try_case(self, worker: Worker, case: Case, purpose: str) -> Tried:
        """Try one case in a worker that holds the answer."""
        tried = try_case(self, worker, case, purpose)
        self.kernels += [kind for kind in tried.kernels if kind not in self.kernels]
        # Of the first case, as what a trace counts is.
        self.counted = self.counted or tried.counted
        return tried
