"""What grading an exercise gives: gates, status, points, in words that are honest."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Status = Literal["passed", "failed", "timeout", "crashed", "infrastructure error"]
GateStatus = Literal[
    "passed",
    "failed",
    "timeout",
    "crashed",
    "not checked",
    "not measured",
    "infrastructure error",
]
GATES = ("compiles", "sound", "right", "counts", "structure", "fast")


@dataclass(frozen=True)
class Gate:
    """One gate and what came of it.

    Args:
        name: one of ``GATES``.
        status: what came of it; ``not checked`` and ``not measured`` earn nothing
            and leave the denominator.
        message: for the learner.
        detail: further facts as plain JSON types: lines, pictures, ratios.
    """

    name: str
    status: GateStatus
    message: str = ""
    detail: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Part:
    """One share of an exercise's points.

    Args:
        name: ``correct``, ``counts`` or ``speed``.
        points: what it is worth.
        earned: what was earned; ``None`` where it could not be measured.
    """

    name: str
    points: float
    earned: float | None


@dataclass(frozen=True)
class Result:
    """The verdict on one exercise.

    Args:
        exercise, stem, title, kind: which exercise it is.
        status: what came of it.
        words: the same in the report's words, such as *correct (emulated)*.
        message: what is wrong and how to mend it, or what to try next.
        gates: the gates that were reached, in order.
        parts: the shares of the points.
        cases: the cases that it was tried on, and whether it was right on each.
        printed: what the learner's code printed.
        seconds: how long grading it took.
        public: whether only the public cases were tried.
        source: the learner's cell.
    """

    exercise: str
    stem: str
    title: str
    kind: str
    status: Status
    words: str
    message: str
    gates: tuple[Gate, ...] = ()
    parts: tuple[Part, ...] = ()
    cases: tuple[tuple[str, bool], ...] = ()
    printed: str = ""
    seconds: float = 0.0
    public: bool = False
    source: str = ""

    @property
    def earned(self) -> float:
        """The points that were earned."""
        return round(sum(part.earned or 0.0 for part in self.parts), 2)

    @property
    def possible(self) -> float:
        """The points that could be earned here: what was measured."""
        return round(sum(p.points for p in self.parts if p.earned is not None), 2)

    @property
    def points(self) -> float:
        """The points that the exercise is worth where all can be measured."""
        return round(sum(part.points for part in self.parts), 2)

    @property
    def note(self) -> str:
        """What concerns the cell and kept nothing from being graded."""
        first = self.gate("compiles")
        return first.message if first is not None and first.status == "passed" else ""

    @property
    def passed(self) -> bool:
        """Whether every gate that could be judged was passed."""
        return self.status == "passed"

    def gate(self, name: str) -> Gate | None:
        """Return one gate, or ``None`` where it was not reached."""
        return next((gate for gate in self.gates if gate.name == name), None)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON types."""
        return {
            **asdict(self),
            "earned": self.earned,
            "possible": self.possible,
            "points": self.points,
        }


@dataclass
class Record:
    """One run of the grader: what was graded, where, and what came of it.

    Args:
        submission: what was graded.
        seed: what the values and hidden cases were drawn from.
        device: the machine, in words.
        backend: ``emulator`` or ``gpu``.
        sandbox: name and detail of the rung, and whether it is trusted.
        versions: of Python, torch and the course.
        started: ISO time.
        notes: things that concern the whole run, such as a missing notebook.
        results: in the order of the course.
    """

    submission: str
    seed: int
    device: str
    backend: str
    sandbox: dict[str, Any]
    versions: dict[str, str]
    started: str
    notes: list[str] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    finished: str | None = None

    @property
    def earned(self) -> float:
        """The points that were earned."""
        return round(sum(result.earned for result in self.results), 2)

    @property
    def possible(self) -> float:
        """The points that could be earned here."""
        return round(sum(result.possible for result in self.results), 2)

    @property
    def points(self) -> float:
        """The points where all can be measured."""
        return round(sum(result.points for result in self.results), 2)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON types, the form of ``grade.json``."""
        return {
            "format": 1,
            "submission": self.submission,
            "seed": self.seed,
            "device": self.device,
            "backend": self.backend,
            "sandbox": self.sandbox,
            "versions": self.versions,
            "started": self.started,
            "finished": self.finished,
            "complete": self.finished is not None,
            "earned": self.earned,
            "possible": self.possible,
            "points": self.points,
            "notes": self.notes,
            "results": [result.to_json() for result in self.results],
        }
