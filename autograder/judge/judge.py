"""The judge: one exercise's cells in, one result out, through gates in order.

``check`` in the notebook and ``make grade`` both come through here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import cast

from autograder.exercise import Exercise
from autograder.exercises import all_exercises
from autograder.judge import gates
from autograder.judge.branches import with_defaults
from autograder.judge.kinds import kind_of
from autograder.judge.results import Gate, Part, Result, Status
from autograder.judge.run import Run
from autograder.judge.selftest import ESSENTIAL, language_of, unfit_gates
from autograder.judge.trial import Cell, Deadlines
from autograder.judge.values import fresh_seed
from autograder.judge.words import clean
from autograder.languages import code_of
from autograder.submission.submitted import Submission, is_untouched
from autograder.supervisor.workers import ForkServer, InfrastructureError, Limits

Progress = Callable[[str], None]


class Judge:
    """Grades exercises with warm workers; close it when done.

    Args:
        seed: what values and hidden cases are drawn from; drawn where not given.
        device: ``cpu`` or ``cuda``; by default what this machine has.
        public: try the public cases only, as ``check`` does.
        deadlines, limits: what an answer may take.
        speed_budget_s: wall time for one exercise's speed gate.
    """

    def __init__(
        self,
        *,
        seed: int | None = None,
        device: str | None = None,
        public: bool = False,
        deadlines: Deadlines | None = None,
        limits: Limits | None = None,
        speed_budget_s: float = 60.0,
    ) -> None:
        self.seed = fresh_seed() if seed is None else seed
        self.device = device or device_here()
        self.public = public
        self.deadlines = deadlines or Deadlines()
        self.speed_budget_s = speed_budget_s
        self._unfit: dict[str, dict[str, Gate]] = {}
        # Without a GPU Triton runs in its interpreter, which is chosen at import.
        self.server = ForkServer(
            interpret=self.device == "cpu", device=self.device, limits=limits
        )

    def __enter__(self) -> Judge:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the workers' parent."""
        self.server.close()

    def unfit(self, language: str) -> Mapping[str, Gate]:
        """Return what stands in the place of gates that this machine cannot judge.

        Args:
            language: as ``selftest.language_of`` names it; tested once.
        """
        if language not in self._unfit:

            def judged(
                exercise: Exercise, submission: Submission, unfit: Mapping[str, Gate]
            ) -> list[Gate]:
                run = self.run_of(exercise, submission, unfit)
                run = replace(run, public=True, deadlines=Deadlines())
                return gates.pass_through(run, lambda _: None)

            self._unfit[language] = unfit_gates(language, judged)
        return self._unfit[language]

    def misfits(self) -> list[str]:
        """Say which gates this machine has shown it cannot judge, and the mend."""
        found = self._unfit.values()
        return [gate.message for unfit in found for gate in unfit.values()]

    def examine(self, exercises: Iterable[Exercise]) -> list[str]:
        """Give the known answers of some exercises' languages, and return the misfits.

        Grading does so by itself once an answer fails. Who hands out points to many
        asks first.
        """
        try:
            for language in dict.fromkeys(map(language_of, exercises)):
                self.unfit(language)
        except InfrastructureError as error:
            self.close()
            return [f"the grader itself failed: {clean(str(error), 2000)}"]
        return self.misfits()

    def grade(
        self,
        exercise: Exercise,
        submission: Submission,
        progress: Progress | None = None,
    ) -> Result:
        """Grade one exercise; whatever goes wrong ends in a result.

        What is the grader's own failure is tried once more, then named as such: it
        is never a silent 0.
        """
        started = time.monotonic()
        for attempt in (1, 2):
            try:
                result = self._grade(exercise, submission, progress or (lambda _: None))
                break
            except Exception as error:
                self.server.close()
                if attempt == 2:
                    result = _not_graded(exercise, error)
        return replace(
            result,
            seconds=round(time.monotonic() - started, 3),
            public=self.public,
        )

    def run_of(
        self,
        exercise: Exercise,
        submission: Submission,
        unfit: Mapping[str, Gate] | None = None,
    ) -> Run:
        """Return an exercise's way through the gates, its cells in their order."""
        every = all_exercises()
        ordered = [*(every[needed] for needed in exercise.needs), exercise]
        return Run(
            exercise=exercise,
            cells=tuple(
                Cell(one.id, one.language, _judged(one, submission.answer(one).source))
                for one in ordered
            ),
            server=self.server,
            device=kind_of(exercise).device(self.device),
            seed=self.seed,
            public=self.public,
            deadlines=self.deadlines,
            speed_budget_s=self.speed_budget_s,
            unfit=unfit or {},
        )

    def _grade(
        self, exercise: Exercise, submission: Submission, progress: Progress
    ) -> Result:
        answer = submission.answer(exercise)
        if answer.trouble:
            gate = Gate("compiles", "failed", answer.trouble, {"words": "no answer"})
            return _finish(exercise, [gate], self)
        if is_untouched(exercise, answer.source):
            gate = Gate(
                "compiles",
                "failed",
                "the cell is as it was given",
                {"words": "not attempted"},
            )
            return replace(_finish(exercise, [gate], self), source=answer.source)
        for needed in exercise.needs:
            if trouble := _not_there(submission, all_exercises()[needed]):
                message = f"it needs {needed} first: {trouble}"
                return _finish(exercise, [Gate("compiles", "failed", message)], self)
        language = language_of(exercise)
        run = self.run_of(exercise, submission, self._unfit.get(language))
        passed = gates.pass_through(run, progress)
        if any(gate.status not in ("passed", "not measured") for gate in passed):
            # Whether it is the machine's fault a known answer says, whatever a worker
            # says. What passes needs no such answer: its gates can be passed here.
            if any(gate.detail.get("toolchain") for gate in passed):
                self._unfit.pop(language, None)
            if self.unfit(language) != run.unfit:
                run = self.run_of(exercise, submission, self.unfit(language))
                passed = gates.pass_through(run, progress)
        if answer.note:
            # It may explain an error, and never takes an error's place.
            said = (passed[0].message, answer.note)
            passed[0] = replace(passed[0], message="\n".join(filter(None, said)))
        return replace(
            _finish(exercise, passed, self),
            cases=tuple(run.cases),
            printed=clean(run.printed, 80_000),
            source=answer.source,
        )


def _judged(exercise: Exercise, source: str) -> str:
    """Return the program of a cell as every compiler is to read it."""
    code = code_of(source)
    return with_defaults(code) if exercise.language == "cuda" else code


def device_here() -> str:
    """Return the torch device type on which answers run on this machine."""
    from kernelwright import cuda

    return "cuda" if cuda.backend() == "gpu" else "cpu"


def _not_there(submission: Submission, needed: Exercise) -> str:
    """Say why an answer that another exercise needs cannot be run; '' if it can."""
    answer = submission.answer(needed)
    if not answer.trouble and is_untouched(needed, answer.source):
        return "its cell is as it was given"
    return answer.trouble


def _finish(exercise: Exercise, passed: list[Gate], judge: Judge) -> Result:
    """Turn gates into a result: its status, its words, its points."""
    unfit = [gate for gate in passed if gate.detail.get("unfit")]
    if any(gate.name in ESSENTIAL for gate in unfit):
        return _not_judged(exercise, unfit[0], "not checked")
    bad = next((g for g in passed if g.status not in _FINE), None)
    status = cast(Status, "passed" if bad is None else bad.status)
    said = [bad.message if bad else exercise.onward, *(g.message for g in unfit)]
    words = _words(exercise, passed, bad, judge.device)
    # Counts have a column of their own in every table.
    missed = [g.name for g in unfit if g.name != "counts" and bad is None]
    return Result(
        exercise=exercise.id,
        stem=exercise.stem,
        title=exercise.title,
        kind=exercise.kind,
        status=status,
        words=", ".join([words, *(f"{name} not checked" for name in missed)]),
        message="\n".join(said),
        gates=tuple(passed),
        parts=_parts(exercise, passed, judge.device),
    )


_FINE = ("passed", "not checked", "not measured")
_FAILED_WORDS = {
    "compiles": "does not compile",
    "sound": "not sound",
    "right": "wrong",
    "counts": "correct, moves too much",
    "structure": "not as required",
}


def _words(
    exercise: Exercise, passed: list[Gate], bad: Gate | None, device: str
) -> str:
    correct = f"correct ({kind_of(exercise).where(device)})"
    if bad is not None and bad.name == "fast":
        return f"{correct}, speed {bad.status}"
    if bad is not None and bad.status == "failed":
        return str(bad.detail.get("words") or _FAILED_WORDS[bad.name])
    if bad is not None:
        return bad.status
    fast = next((g for g in passed if g.name == "fast"), None)
    band = fast.detail.get("band") if fast and fast.status == "passed" else None
    return f"{correct}, fast (GPU): {band}" if band not in (None, "none") else correct


def _parts(exercise: Exercise, passed: list[Gate], device: str) -> tuple[Part, ...]:
    """Share the points among what the exercise declares, and say what was earned."""
    declared = {
        "correct": True,
        "counts": bool(exercise.counts),
        "speed": exercise.speed is not None,
    }
    shares = {name: exercise.shares[name] for name, has in declared.items() if has}
    total = sum(shares.values())
    by_name = {gate.name: gate for gate in passed}
    compiled = exercise.structure or "structure" in by_name
    needed = ["compiles", "right", *(["structure"] if compiled else [])]
    # A gate that was not reached is not passed.
    correct = all(
        (gate := by_name.get(name)) is not None and gate.status in _FINE
        for name in needed
    )
    broken = any(g.status == "infrastructure error" for g in passed)
    kind = kind_of(exercise)
    parts: list[Part] = []
    for name, share in shares.items():
        points = round(exercise.points * share / total, 2)
        earned: float | None
        if name == "correct":
            earned = None if broken and not correct else points if correct else 0.0
        else:
            gate = by_name.get("counts" if name == "counts" else "fast")
            # What could have been counted or timed here is lost with what failed
            # before it.
            lost = name == "counts" and kind.counted
            lost |= name == "speed" and not kind.unmeasured(device)
            earned = _earned(gate, points, lost and not broken)
        parts.append(Part(name, points, earned))
    return tuple(parts)


def _earned(gate: Gate | None, points: float, lost: bool) -> float | None:
    """Return what a measured part earned; ``None`` where it was not measured."""
    if gate is None:
        return 0.0 if lost else None
    if gate.status in ("not checked", "not measured", "infrastructure error"):
        return None
    if gate.name == "fast":
        return round(points * float(gate.detail.get("share", 0.0)), 2)
    return points if gate.status == "passed" else 0.0


def _not_graded(exercise: Exercise, error: Exception) -> Result:
    kind = "" if isinstance(error, InfrastructureError) else f"{type(error).__name__}: "
    message = f"the grader itself failed, twice: {kind}{clean(str(error), 2000)}"
    gate = Gate("compiles", "infrastructure error", message)
    return _not_judged(exercise, gate, "not graded")


def _not_judged(exercise: Exercise, gate: Gate, words: str) -> Result:
    """Return a result that says nothing of the answer: the machine's fault, or ours."""
    return Result(
        exercise=exercise.id,
        stem=exercise.stem,
        title=exercise.title,
        kind=exercise.kind,
        status="infrastructure error",
        words=words,
        message=gate.message,
        gates=(gate,),
        parts=_parts(exercise, [replace(gate, status="infrastructure error")], "cpu"),
    )
