"""The judge: points, what is not measured, retries, seeds, and the stub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_exercises import (
    RIGHT,
    RIGHT_KERNEL,
    SHORT,
    SPEED,
    TWICE,
    make_exercise,
    python_cell,
)

from autograder import exercises
from autograder.exercise import Count, Structure
from autograder.judge import gates
from autograder.judge import judge as judge_module
from autograder.judge.judge import Judge
from autograder.judge.results import Result
from autograder.judge.structure import instructions
from autograder.regions import cell_source
from autograder.submission.submitted import Cells
from autograder.supervisor.workers import SMALLEST, InfrastructureError
from autograder.worker.cells import Namespace
from autograder.worker.serve import _sass
from kernelwright.cuda.nvrtc import Cubin
from kernelwright.errors import CompileError

COUNT = Count("moved", "global", "load")


def cells(**answers: str) -> Cells:
    """Return a submission of the given cells."""
    return Cells(answers)


RIGHT_CELLS = cells(twice=RIGHT.format(name="twice"))


def test_what_is_not_measured_leaves_the_denominator(judge: Judge) -> None:
    exercise = make_exercise(counts=(COUNT,), speed=SPEED)
    result = judge.grade(exercise, RIGHT_CELLS)
    assert (result.earned, result.possible, result.points) == (6.0, 6.0, 10.0)
    assert [(p.name, p.points, p.earned) for p in result.parts] == [
        ("correct", 6.0, 6.0),
        ("counts", 2.0, None),
        ("speed", 2.0, None),
    ]
    statuses = {gate.name: gate.status for gate in result.gates}
    assert statuses == {
        "compiles": "passed",
        "sound": "not checked",
        "right": "passed",
        "counts": "not checked",
        "fast": "not measured",
    }


def test_a_share_that_is_not_declared_goes_to_the_others(judge: Judge) -> None:
    result = judge.grade(make_exercise(speed=SPEED), RIGHT_CELLS)
    assert [(p.name, p.points) for p in result.parts] == [
        ("correct", 7.5),
        ("speed", 2.5),
    ]


def test_a_wrong_answer_earns_nothing_of_what_could_be_earned(judge: Judge) -> None:
    exercise = make_exercise(counts=(COUNT,), speed=SPEED)
    result = judge.grade(exercise, cells(twice=python_cell("return x")))
    assert (result.earned, result.possible) == (0.0, 6.0)


def test_the_same_seed_gives_the_same_grade(judge: Judge) -> None:
    # Wrong in hidden cases alone: the public ones have the same values for all.
    body = "return 2 * x if len(x) < 40 else x.abs()"

    def graded(seed: int) -> dict[str, Any]:
        judge.seed = seed
        data = judge.grade(TWICE, cells(twice=python_cell(body))).to_json()
        del data["seconds"]
        return data

    before = judge.seed
    try:
        assert graded(11) == graded(11)
        assert graded(11) != graded(12)
    finally:
        judge.seed = before


def test_hidden_cases_are_tried_and_not_by_check(judge: Judge) -> None:
    body = "return 2 * x if len(x) < 40 else x"
    result = judge.grade(TWICE, cells(twice=python_cell(body)))
    assert not result.passed and "hidden case n =" in result.message
    judge.public = True
    try:
        public = judge.grade(TWICE, cells(twice=python_cell(body)))
    finally:
        judge.public = False
    assert public.passed and public.public
    assert public.gate("right").message == "2 public checks"  # type: ignore[union-attr]


def test_an_untouched_stub_is_not_attempted(
    judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from autograder import regions

    stub = "# exercise: twice\ndef twice(x):\n    raise NotImplementedError\n"
    monkeypatch.setattr(regions, "cell_source", lambda e, solved: stub)
    result = judge.grade(TWICE, cells(twice=stub.replace("\n", "  \n") + "\n\n"))
    assert (result.words, result.earned, result.possible) == ("not attempted", 0, 10)
    assert result.status == "failed"


def test_the_graders_own_failure_is_retried_and_named(judge: Judge) -> None:
    calls: list[int] = []

    def once(arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            raise OSError("the disk is full")
        return {"out": arguments["x"].double() * 2}

    assert judge.grade(make_exercise(reference=once), RIGHT_CELLS).passed

    def always(arguments: Any) -> Any:
        raise OSError("the disk is full")

    result = judge.grade(make_exercise(reference=always), RIGHT_CELLS)
    assert result.status == "infrastructure error"
    assert "the disk is full" in result.message
    # It takes nothing away: it is no silent 0.
    assert (result.earned, result.possible, result.points) == (0.0, 0.0, 10.0)
    assert judge.grade(TWICE, RIGHT_CELLS).passed


def test_a_dead_parent_of_workers_is_replaced(judge: Judge) -> None:
    judge.grade(TWICE, RIGHT_CELLS)
    process = judge.server._process
    assert process is not None
    process.kill()
    process.wait()
    assert judge.grade(TWICE, RIGHT_CELLS).passed


def test_needed_exercises_run_first(
    judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    exercise = make_exercise("more", needs=("twice",))
    every = {"twice": TWICE, "more": exercise}
    monkeypatch.setattr(judge_module, "all_exercises", lambda: every)
    more = "# exercise: more\ndef more(x): return twice(x)\n"
    assert judge.grade(
        exercise, cells(more=more, twice=RIGHT_CELLS.cells["twice"])
    ).passed
    alone = judge.grade(exercise, cells(more=more))
    assert "it needs twice first" in alone.message
    broken = judge.grade(exercise, cells(more=more, twice="# exercise: twice\n1 / 0"))
    assert "line 2 of the cell of twice, which this exercise needs" in broken.message


def test_a_needed_exercise_that_is_not_attempted_is_named(judge: Judge) -> None:
    every = exercises.all_exercises()
    exercise = every["decode_split_kv"]
    given = {
        name: cell_source(every[name], solved=name != "absorb_tile")
        for name in (*exercise.needs, exercise.id)
    }
    result = judge.grade(exercise, Cells(given))
    assert result.message == "it needs absorb_tile first: its cell is as it was given"
    assert result.earned == 0.0


def test_a_helper_of_another_cell_is_not_there(judge: Judge) -> None:
    result = judge.grade(
        TWICE, cells(twice=python_cell("return helper(x)"), other="def helper(x): 0")
    )
    assert "name 'helper' is not defined" in result.message


def test_structure_is_read_from_the_machine_code(judge: Judge) -> None:
    wants = Structure(holds=("LDG.E.128",), message="No 128-bit load.")
    exercise = make_exercise("doubled", "cuda", structure=(wants,))
    result = judge.grade(exercise, cells(doubled=RIGHT_KERNEL))
    assert (result.status, result.earned) == ("failed", 0.0)
    assert result.message == "No 128-bit load."
    assert result.words == "not as required"
    has = make_exercise("doubled", "cuda", structure=(Structure(holds=("LDG",)),))
    assert judge.grade(has, cells(doubled=RIGHT_KERNEL)).passed
    lacks = make_exercise("doubled", "cuda", structure=(Structure(lacks=("STG",)),))
    assert "holds STG" in judge.grade(lacks, cells(doubled=RIGHT_KERNEL)).message


@pytest.mark.parametrize("read", [False, True])
def test_machine_code_is_disassembled_only_to_be_read(
    read: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whether a GPU takes it, compiling says; disassembling takes longer."""
    asked: list[str] = []

    def sass(cubin: Cubin, name: str) -> str:
        asked.append(name)
        return "its code"

    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path))
    monkeypatch.setattr(Cubin, "sass", sass)
    request = {"op": "sass", "source": SMALLEST, "name": "twice", "arch": "sm_90"}
    answer, blobs = _sass(Namespace(str(tmp_path)), {**request, "read": read}, [])
    assert answer == {"ok": True} and blobs == [b"its code" if read else b""]
    assert asked == (["twice"] if read else [])
    with pytest.raises(CompileError):
        broken = {"source": SMALLEST.replace("int*", "in*"), "read": read}
        _sass(Namespace(str(tmp_path)), {**request, **broken}, [])


def test_mnemonics_of_a_disassembly() -> None:
    text = (
        '\t.headerflags @"EF_CUDA_SM90"\n'
        "        /*0000*/   LDC R1, c[0x0][0x28] ;    /* 0x00000a00ff017b82 */\n"
        "                                             /* 0x000fe20000000800 */\n"
        "        /*0010*/   @!P0 LDG.E.128 R4, [R2.64] ;  /* 0x0 */\n"
        "        /*0020*/   EXIT ;\n"
    )
    assert instructions(text) >= {"LDC", "LDG.E.128", "EXIT"}
    assert not any(m.startswith("P0") for m in instructions(text))


def test_speed_is_judged_on_a_gpu_only_when_right(
    judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    from autograder.judge.results import Gate

    gate = Gate("fast", "passed", "", {"share": 0.75, "band": "silver", "ratio": 0.8})
    monkeypatch.setattr(gates, "_fast", lambda run: gate)
    exercise = make_exercise(speed=SPEED)
    result = judge.grade(exercise, RIGHT_CELLS)
    assert (result.earned, result.possible) == (9.38, 10.0)
    assert result.words == "correct (CPU), fast (GPU): silver"
    wrong = judge.grade(exercise, cells(twice=python_cell("return x")))
    assert wrong.gate("fast") is None


def test_results_are_plain_json(judge: Judge) -> None:
    import json

    result: Result = judge.grade(TWICE, cells(twice=python_cell("return x / 0")))
    text = json.dumps(result.to_json(), allow_nan=False)
    assert json.loads(text)["exercise"] == "twice"


def test_every_exercise_of_the_course_is_well_declared() -> None:
    for exercise in exercises.all_exercises().values():
        assert exercise.points > 0 and len(exercise.hints) == 3
        assert abs(sum(exercise.shares.values()) - 1) < 1e-9
        assert all(need in exercises.all_exercises() for need in exercise.needs)


def test_deadlines_leave_the_emulator_time_to_speak() -> None:
    assert SHORT.kernel < SHORT.case
    assert judge_module.Deadlines().kernel < judge_module.Deadlines().case
    assert issubclass(InfrastructureError, Exception)
