"""The real supervisor: a trusted process, a learner's, and the clock between."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from statistics import median
from typing import Any

from autograder.exercise import Exercise
from autograder.judge.speed.channel import Gone, Late
from autograder.judge.speed.processes import TrustedProcess, held_still, other_numbers
from autograder.judge.speed.rounds import LearnerTurn
from autograder.judge.speed.verdict import Status
from autograder.supervisor.workers import (
    ForkServer,
    InfrastructureError,
    Worker,
    WorkerEnded,
)
from autograder.worker.wire import Header

TURN_S = 0.012
"""How long a turn of the peer should take: ten times what surrounds it."""

REST_S = 0.1
"""The GPU is left idle so long before each turn."""

_PART_OF_MEMORY = 0.5
_SETUP_S = 180.0
_TRUSTED_S = 60.0
_PREPARE_S = 60.0
_REHEARSALS = 7
_WARM_TURNS = 2
_MOST_CHECKED = 8
_CHECK_S = 0.3
_SPARE_BYTES = 4 << 30
"""GPU memory that a learner's process may take beside its outputs: a CUDA context,
and room to work."""


class Ended(Exception):
    """The trial is over before its time."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status: Status = status
        self.message = message


class NotShared(Exception):
    """This machine's processes cannot share device memory."""


@dataclass(frozen=True)
class Setting:
    """What the trusted process found when it set up; see ``Trusted._on_setup``."""

    facts: Header

    def __getitem__(self, name: str) -> Any:
        return self.facts[name]


class GpuSupervisor:
    """Runs the turns of one trial on this machine's GPU.

    Args:
        exercise: has a ``speed``.
        cells: what the learner wrote, as the worker's ``prepare`` takes it.
        seed: what the inputs are drawn from.
        server: forks the learner's process.
        most_s: the longest that a request to the learner's process may take.
        where: file of the exercise, where it is none of the course's.
    """

    def __init__(
        self,
        exercise: Exercise,
        cells: Sequence[Header],
        *,
        seed: int,
        server: ForkServer,
        most_s: float = _PREPARE_S,
        where: str | None = None,
    ) -> None:
        self._exercise, self._cells = exercise, list(cells)
        self._server = server
        self._turn = 0
        self._most_s = min(_PREPARE_S, most_s)
        self._checked = _MOST_CHECKED
        # Forked now, and idle until it is admitted: no line of the learner's is in it.
        # It has no process namespace of its own, which memory cannot be shared
        # across; what it leaves behind goes to its keeper.
        self._worker: Worker | None = server.spawn(private=False)
        assert server.pid is not None
        self._trusted = TrustedProcess(other_numbers(server.pid))
        try:
            self.setting = Setting(
                self._order(
                    {
                        "op": "setup",
                        "exercise": exercise.id,
                        "where": where,
                        "seed": seed,
                        "target_s": TURN_S,
                        "part": _PART_OF_MEMORY,
                    },
                    within_s=_SETUP_S,
                )
            )
            self._peer_overhead_s = self._learner_overhead_s = 0.0
            around = [self._peer_turn() for _ in range(_REHEARSALS)]
            self._peer_overhead_s = median(clock - own for clock, own in around)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End every process of the trial."""
        self.dismiss()
        self._trusted.close()

    @property
    def overhead_ms(self) -> float:
        """What was taken off each of the learner's turns."""
        return self._learner_overhead_s * 1e3

    def now(self) -> float:
        """Return the supervisor's monotonic clock, in seconds."""
        return time.monotonic()

    def peer(self) -> float:
        """Run a turn of the peer while the learner's process is held still."""
        with self._held():
            clock, own = self._peer_turn()
        # Its own events are trusted: noise around a short turn cannot make it 0.
        return max(clock - self._peer_overhead_s, own / 2)

    def admit(self) -> None:
        """Time what is not the learner's doing, then load the learner's code."""
        setting = self.setting
        names = ("handle", "layout", "calls", "outputs", "launch")
        attached = self._tell(
            {"what": "attach", **{name: setting[name] for name in names}}
        )
        if attached.get("ok") is not True:
            if "cuIpc" in str(attached.get("message")):
                raise NotShared(str(attached.get("message")))
            raise InfrastructureError(str(attached.get("message")))
        # So far no line of the learner's has run, and what the process says of its
        # own copies is believed: what the clock shows beyond that is the way there
        # and back, and is taken off every turn.
        around = [self._rehearsal() for _ in range(_REHEARSALS)]
        self._learner_overhead_s = median(around)
        self._demand(
            self._ask(
                {
                    "op": "prepare",
                    "prelude": self._exercise.prelude,
                    "cells": self._cells,
                    "name": self._exercise.name,
                    "entry": self._exercise.entry,
                }
            )
        )
        chosen = {"name": self._exercise.name, "entry": self._exercise.entry}
        self._demand(self._tell({"what": "choose", **chosen}))
        for _ in range(_WARM_TURNS):
            warm = self.learner()
        # A turn that takes this much longer than the last one is stuck.
        self._most_s = min(self._most_s, max(5.0, 20 * warm.seconds))

    def learner(self) -> LearnerTurn:
        """Run a turn of the learner's code on fresh inputs, and verify it."""
        self._turn += 1
        load = {"what": "load", "scalars": self._scalars()}
        self._demand(self._tell(load))
        with self._held():
            fresh = self._order({"op": "refresh", "turn": self._turn})
            self._rest()
        self._mind_memory(fresh["free"])
        turn = self._learner_turn("turn")
        self._verify()
        return turn

    def dismiss(self) -> None:
        """End the learner's process and all that it started."""
        if self._worker is not None:
            worker, self._worker = self._worker, None
            worker.end()

    def _peer_turn(self) -> tuple[float, float]:
        """Return a peer's turn by our clock, and by its own events, in seconds."""
        self._rest()
        start = time.monotonic()
        answer = self._request({"op": "peer"})
        seconds = time.monotonic() - start
        self._obeyed(answer)
        return seconds, answer["events_s"]

    def _rest(self) -> None:
        """Let the GPU rest, so that every turn finds it as the others do.

        Before a turn of the peer outputs were checked, in float64; before one of the
        learner's, inputs were drawn. What the chip has just done decides how fast a
        product of matrices runs that it has no power to run at full speed for long.
        """
        time.sleep(REST_S)
        self._order({"op": "wake"})

    def _rehearsal(self) -> float:
        """Return the seconds of a turn that are not its work's."""
        with self._held():
            self._rest()
        turn = self._learner_turn("rehearse")
        assert turn.events_s is not None
        return turn.seconds - turn.events_s

    def _learner_turn(self, what: str) -> LearnerTurn:
        """Time one turn, from the word *go* until the outputs are sealed."""
        start = time.monotonic()
        told = self._tell({"what": what})
        if told.get("ok") is not True:
            self._demand(told)
        # Only now is it drawn which elements are looked at.
        key = secrets.randbits(60)
        returned = told if self.setting["launch"] is None else None
        sealed = self._request({"op": "seal", "key": key, "told": returned})
        seconds = time.monotonic() - start
        self._obeyed(sealed)
        events = told.get("events_ms")
        return LearnerTurn(
            max(seconds - self._learner_overhead_s, 1e-9),
            events / 1e3 if isinstance(events, float) and events > 0 else None,
        )

    def _scalars(self) -> list[Header]:
        """Return the next turn's scalars, call by call."""
        same = self.setting["scalars"]
        if same is not None:
            return [same] * self.setting["calls"]
        drawn = self._order({"op": "scalars", "turn": self._turn})["scalars"]
        assert isinstance(drawn, list)
        return drawn

    def _verify(self) -> None:
        """Have the sealed outputs of some calls compared with the right ones."""
        calls = range(self.setting["calls"])
        chosen = random.SystemRandom().sample(calls, min(len(calls), self._checked))
        start = time.monotonic()
        found = self._order(
            {"op": "check", "turn": self._turn, "calls": chosen, "whole": chosen[0]}
        )["wrong"]
        each_s = (time.monotonic() - start) / len(chosen)
        self._checked = max(1, min(_MOST_CHECKED, int(_CHECK_S / max(each_s, 1e-6))))
        if found is None:
            return
        at = f"{found['output']}[{found['index']}]"
        if found.get("late"):
            raise Ended(
                "failed",
                f"At the timed size the outputs were not finished when your code said "
                f"that it was done: {at} came later. The clock stops when the results "
                "are there.",
            )
        raise Ended(
            "failed",
            f"Wrong at the timed size ({self._exercise.speed.case.name}): {at} "  # type: ignore[union-attr]
            f"is {found['got']}; wanted {found['expected']}. Every call gets new "
            "inputs, and an index may pass what 16 or 32 bits hold.",
        )

    def _mind_memory(self, free: int) -> None:
        """Stop a learner's process that fills the GPU's memory."""
        returned = self.setting["returned_bytes"] * self.setting["calls"]
        allowed = 2 * returned + _SPARE_BYTES
        taken = self.setting["free"] - free
        if taken > allowed:
            raise Ended(
                "failed",
                f"Your code took {taken / 1e9:.1f} GB of GPU memory at the timed "
                f"size; {allowed / 1e9:.1f} GB are enough.",
            )

    def _held(self) -> AbstractContextManager[None]:
        """Hold the learner's processes still, where there are any."""
        pid = self._server.pid
        if self._worker is None or pid is None:
            return nullcontext()
        return held_still(pid)

    def _tell(self, request: Header) -> Header:
        return self._ask({"op": "timed", **request})

    def _ask(self, request: Header) -> Header:
        """Ask the learner's process; how it ends, if it does, is the ended."""
        assert self._worker is not None
        try:
            answer, _ = self._worker.ask(request, deadline_s=self._most_s, sizes=())
        except WorkerEnded as ended:
            raise Ended(ended.status, f"At the timed size: {ended.message}.") from None
        return answer

    def _demand(self, answer: Header) -> None:
        """Rule on an answer that is an error."""
        if answer.get("ok") is True:
            return
        from autograder.judge.words import trouble_message

        words = trouble_message(answer, self._exercise)
        if answer.get("kind") == "toolchain":
            raise InfrastructureError(words)
        raise Ended("failed", f"At the timed size: {words}")

    def _order(self, request: Header, within_s: float = _TRUSTED_S) -> Header:
        answer = self._request(request, within_s)
        self._obeyed(answer)
        return answer

    def _request(self, request: Header, within_s: float = _TRUSTED_S) -> Header:
        try:
            return self._trusted.channel.ask(request, within_s=within_s)
        except (Gone, Late) as error:
            how = "did not answer in time" if isinstance(error, Late) else str(error)
            raise InfrastructureError(
                f"the trusted process {how}. {self._trusted.said()}".strip()
            ) from error

    def _obeyed(self, answer: Header) -> None:
        """Raise what kept the trusted process from doing what it was asked."""
        if answer.get("ok") is True:
            return
        kind, message = answer.get("kind"), str(answer.get("message"))
        if kind == "outputs":
            raise Ended("failed", message[:1].upper() + message[1:] + ".")
        if kind == "room":
            raise Ended("not measured", f"Not measured: {message}.")
        if kind == "memory" and hasattr(self, "setting"):
            self._mind_memory(answer["free"])
        if kind == "driver" and "cuIpc" in message:
            raise NotShared(message)
        raise InfrastructureError(message)
