"""What the speed gate says of one exercise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

Status = Literal[
    "passed",
    "failed",
    "timeout",
    "crashed",
    "infrastructure error",
    "not measured",
]
Band = Literal["gold", "silver", "bronze", "none"]

SHARES: Mapping[Band, float] = {"gold": 1.0, "silver": 0.75, "bronze": 0.5, "none": 0.0}
"""What part of the speed points each band earns."""


@dataclass(frozen=True, kw_only=True)
class SpeedVerdict:
    """The outcome of one trial.

    ``not measured`` and ``infrastructure error`` leave the denominator; the other
    statuses earn ``share`` of the speed points.

    Args:
        status: how it ended.
        message: one sentence for the learner.
        share: part of the speed points that is earned, 0 to 1.
        ratio: the peer's time over the learner's; 1 is as fast as the peer.
        low, high: the ratio's 95% interval.
        band: the band that the ratio earns.
        peer: what it was measured against.
        gbps, peer_gbps: bandwidth of both, counting the least bytes to be moved.
        tflops, peer_tflops: rate of both, where the exercise counts operations.
        time_ms: the learner's median time of one call, by the supervisor's clock.
        events_ms: the same by device events in the learner's process: for display,
            since that process can say what it likes.
        rounds, voided: rounds that counted, and rounds thrown away.
        calls: calls in a turn, each with inputs of its own.
        overhead_ms: what surrounds a turn's work, taken off each of the learner's.
        flags: what a reader of the result should know.
        device: the GPU's name.
    """

    status: Status
    message: str
    share: float = 0.0
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    band: Band = "none"
    peer: str = ""
    gbps: float | None = None
    peer_gbps: float | None = None
    tflops: float | None = None
    peer_tflops: float | None = None
    time_ms: float | None = None
    events_ms: float | None = None
    rounds: int = 0
    voided: int = 0
    calls: int = 0
    overhead_ms: float | None = None
    flags: tuple[str, ...] = ()
    device: str = ""

    @property
    def counts(self) -> bool:
        """Whether speed stays in the denominator of the grade."""
        return self.status not in ("not measured", "infrastructure error")

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON types."""
        return {**asdict(self), "flags": list(self.flags)}


def not_measured(why: str) -> SpeedVerdict:
    """Say that there is no speed to speak of, and why."""
    return SpeedVerdict(status="not measured", message=why)
