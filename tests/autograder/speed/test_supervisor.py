"""What a turn finds when it begins, on a supervisor whose processes are made up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from autograder.judge.speed import supervisor
from autograder.judge.speed.supervisor import REST_S, GpuSupervisor


class NoGpu(GpuSupervisor):
    """Writes down what its two processes are asked, and answers for them."""

    def __init__(self, said: list[str]) -> None:
        self.said = said
        self._turn, self._checked, self._worker = 0, 1, None
        self._peer_overhead_s = self._learner_overhead_s = 0.0
        self.setting = supervisor.Setting(
            {"scalars": {}, "calls": 2, "returned_bytes": 0, "free": 0, "launch": {}}
        )

    def _request(self, request: dict[str, Any], within_s: float = 60.0) -> Any:
        self.said.append(request["op"])
        return {"ok": True, "events_s": 0.01, "free": 0, "wrong": None}

    def _tell(self, request: dict[str, Any]) -> Any:
        self.said.append(f"learner: {request['what']}")
        return {"ok": True, "events_ms": 10.0}


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    said: list[str] = []
    monkeypatch.setattr(supervisor.time, "sleep", lambda s: said.append(f"rest {s} s"))
    monkeypatch.setattr(NoGpu, "_held", lambda self: supervisor.nullcontext())
    yield said


def test_every_turn_begins_on_a_gpu_that_rested(said: list[str]) -> None:
    here = NoGpu(said)
    here.peer()
    here.learner()
    here.peer()
    rested = [f"rest {REST_S} s", "wake"]
    assert said == [
        *rested, "peer",
        "learner: load", "refresh", *rested, "learner: turn", "seal", "check",
        *rested, "peer",
    ]  # fmt: skip


def test_what_surrounds_a_turn_is_rehearsed_after_a_rest_too(said: list[str]) -> None:
    NoGpu(said)._rehearsal()
    assert said == [f"rest {REST_S} s", "wake", "learner: rehearse", "seal"]
