"""``judge_speed``: one exercise's trial, from the cells to the verdict."""

from __future__ import annotations

import time
from collections.abc import Sequence

from autograder.exercise import Exercise
from autograder.judge.speed.bands import against_copy, bands_for
from autograder.judge.speed.decide import Facts, decide
from autograder.judge.speed.rounds import run_trial
from autograder.judge.speed.supervisor import Ended, GpuSupervisor, NotShared
from autograder.judge.speed.verdict import SpeedVerdict, not_measured
from autograder.judge.trial import Cell
from autograder.supervisor.workers import ForkServer, InfrastructureError
from autograder.worker.wire import Header

_TRIES = 2
_AFTERWARDS_S = 3.0
"""Kept back from the budget for the turns after the learner's process has gone."""

_LEAST_S = 2.0


def judge_speed(
    exercise: Exercise,
    cells: Sequence[Cell],
    *,
    seed: int,
    budget_s: float,
    server: ForkServer | None = None,
    where: str | None = None,
) -> SpeedVerdict:
    """Time an answer against its peer and say which band it earns.

    Args:
        exercise: what is judged; an answer that is not right must not come here.
        cells: those that the exercise needs, then its own.
        seed: what the inputs are drawn from, on the device.
        budget_s: wall seconds for everything.
        server: forks workers that compile for the GPU; one is started if not given.
        where: the file that declares the exercise, where it is none of the course's.

    Returns:
        The verdict; whatever goes wrong is in it, and no exception comes out.
    """
    if exercise.speed is None:
        return not_measured("This exercise has no speed gate.")
    from kernelwright.cuda import backend

    if backend() != "gpu":
        return not_measured("Speed is measured on a GPU only; there is none here.")
    sent = [vars(cell) for cell in cells]
    own = server is None
    server = server or ForkServer(interpret=False, device="cuda")
    start = time.monotonic()
    try:
        for _ in range(_TRIES):
            left = budget_s - (time.monotonic() - start)
            verdict = _try(exercise, sent, seed, max(left, _LEAST_S), server, where)
            if verdict.status != "infrastructure error":
                break
        return verdict
    finally:
        if own:
            server.close()


def _try(
    exercise: Exercise,
    cells: list[Header],
    seed: int,
    budget_s: float,
    server: ForkServer,
    where: str | None,
) -> SpeedVerdict:
    """Hold one trial, whatever comes of it."""
    try:
        return _trial(exercise, cells, seed, budget_s, server, where)
    except NotShared as error:
        return not_measured(
            "Not measured: this machine's processes cannot share GPU memory, which "
            f"an honest measurement needs (WSL2 cannot). CUDA says: {error}."
        )
    except Ended as ended:
        return SpeedVerdict(status=ended.status, message=ended.message)
    except InfrastructureError as error:
        return SpeedVerdict(status="infrastructure error", message=str(error))


def _trial(
    exercise: Exercise,
    cells: list[Header],
    seed: int,
    budget_s: float,
    server: ForkServer,
    where: str | None,
) -> SpeedVerdict:
    """Set the supervisor up, run_trial, and decide."""
    speed = exercise.speed
    assert speed is not None
    start = time.monotonic()
    supervisor = GpuSupervisor(
        exercise,
        cells,
        seed=seed,
        server=server,
        most_s=budget_s,
        where=where,
    )
    try:
        setting = supervisor.setting
        bands = bands_for(speed, setting["family"], setting["known"])
        left = budget_s - (time.monotonic() - start) - _AFTERWARDS_S
        left = max(left, _LEAST_S)
        trial = run_trial(supervisor, bands, budget_s=left / 2, extended_s=left)
    finally:
        supervisor.close()
    by_copy = against_copy(speed, setting["known"])
    facts = Facts(
        device=setting["name"],
        peer="copy bandwidth" if by_copy else speed.peer,
        bytes_moved=setting["bytes_moved"],
        calls=setting["calls"],
        copy_gbps=setting["copy_gbps"],
        peak_gbps=setting["peak_gbps"],
        reads_only=speed.reads_only,
        flops=setting["flops"],
        peak_tflops=setting["peak_tflops"],
        overhead_ms=supervisor.overhead_ms,
        flags=_notes(setting.facts),
    )
    return decide(trial, facts, bands)


def _notes(facts: Header) -> tuple[str, ...]:
    """Note what weakens the measurement."""
    notes = []
    if not facts["cold"]:
        notes.append("the inputs fit in four L2 caches: memory is not all that counts")
    if not facts["on_device"]:
        notes.append("inputs were drawn on the CPU and rolled between calls")
    return tuple(notes)
