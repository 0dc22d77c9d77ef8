"""Gates 2 and 4: what a trace shows fails with its place, and what it counts earns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from small_exercises import KERNEL, RIGHT_KERNEL, make_exercise

from autograder.exercise import Case, Count, Exercise, Launch, Problem
from autograder.ideals import barriers, moves, shared
from autograder.judge import sound
from autograder.judge.counts import check_counts
from autograder.judge.judge import Judge
from autograder.judge.kinds import kind_of
from autograder.judge.results import Gate, Record, Result
from autograder.judge.run import Run
from autograder.judge.traces import NoTrace, Trace, read_trace
from autograder.learner.show import CheckResult
from autograder.report.gradescope import results_json
from autograder.report.html import html_report
from autograder.report.points import part_words
from autograder.report.table import plain_table
from autograder.submission.submitted import Cells

GradeBoth = Callable[..., Result]
COUNTED = replace(KERNEL, counts=moves())


def launched(block: int, shared: int = 0) -> Exercise:
    """Return the exercise with one block of so many threads, whatever the length."""

    def problem(case: Any, generator: Any) -> Problem:
        drawn = KERNEL.problem(case, generator)
        return replace(drawn, launch=Launch((1,), (block,), shared))

    return replace(COUNTED, problem=problem)


def cell(body: str) -> str:
    """Return a cell whose kernel has the given body; it begins on line 4."""
    return (
        "%%cuda\n// exercise: doubled\n"
        f"__global__ void doubled(const float* x, float* out, int n) {{\n{body}\n}}\n"
    )


def gate(result: Result, name: str) -> Gate:
    found = result.gate(name)
    assert found is not None, result
    return found


def test_a_sound_kernel_that_moves_little_earns_both(judge: Judge) -> None:
    result = judge.grade(COUNTED, Cells({"doubled": RIGHT_KERNEL}))
    assert result.passed and result.earned == result.possible == 10.0
    assert gate(result, "sound").status == "passed"
    counts = gate(result, "counts")
    assert "global loads: 160 bytes (ideal 160)" in counts.message
    assert part_words(result, "counts") == "passed, ideal"
    shown = repr(CheckResult(result, 7))
    assert "moves what it should: global loads" in shown and "not checked" not in shown


@pytest.mark.parametrize(
    ("block", "body", "kind", "words", "lines"),
    [
        (
            64,
            "int i = threadIdx.x;\n__shared__ float t[64];\nt[i] = i < n ? x[i] : 0;\n"
            "float v = t[(i + 32) % 64];\nif (i < n) out[i] = 2 * (i < 0 ? v : x[i]);\n"
            "out[0] = 2 * x[0] + 0 * v;",
            "race",
            "race on t[",
            {6, 7},
        ),
        (
            64,
            "int i = threadIdx.x;\nif (i <= n) out[i] = 2 * x[i];",
            "out of bounds",
            "outside of x, which has 33 elements",
            {5},
        ),
        (
            64,
            "int i = threadIdx.x;\n__shared__ float t[64];\n"
            "if (i < 8) t[i] = 0;\n__syncthreads();\n"
            "if (i < n) out[i] = 2 * x[i] + 0 * t[63 - i];",
            "uninitialised read",
            "which nobody has written",
            {8},
        ),
        (
            64,
            "int i = threadIdx.x;\nif (i < n) out[i] = 2 * x[i] + 0 * out[i];",
            "uninitialised read",
            "out[",
            {5},
        ),
        (
            64,
            "int i = threadIdx.x;\nif (i < n) out[i] = 2 * x[i];\n"
            "if (i < 32) {\n__syncthreads();\n} else {\n__syncthreads();\n}",
            "divergent barrier",
            "",
            {7, 9},
        ),
        (  # and a race, which it leaves behind
            64,
            "int i = threadIdx.x;\n__shared__ float t[64];\nt[i] = i < n ? x[i] : 0;\n"
            "if (i < n) __syncthreads();\nfloat v = t[63 - i];\n__syncthreads();\n"
            "if (i < n) out[i] = 2 * x[i] + 0 * v;",
            "divergent barrier",
            "move it out of the branch",
            {7},
        ),
        (
            64,
            "int i = threadIdx.x;\nif (i < n) out[i] = 2 * x[i];\n"
            "if (n < 8) return;\nfloat4 v = *(const float4*)(x + 1);\n"
            "if (v.x == 1e30f) out[0] = v.y;",
            "misaligned",
            "16 bytes at once",
            {7},
        ),
    ],
)
def test_what_a_kernel_must_not_do_fails_on_its_line(
    grade_both: GradeBoth, block: int, body: str, kind: str, words: str, lines: set[int]
) -> None:
    result = grade_both(cell(body), launched(block))
    found = gate(result, "sound")
    assert (result.words, result.earned, result.possible) == ("not sound", 0, 10)
    assert result.gate("right") is None
    problem = found.detail["problems"][0]
    assert problem["kind"] == kind and set(problem["lines"]) & lines, problem
    assert kind in result.message and words in result.message
    assert len(problem["block"]) == 3 and problem["threads"][0]


def test_a_race_whose_values_come_out_right_is_found(judge: Judge) -> None:
    body = "int i = threadIdx.x;\n__shared__ int seen;\nif (i == 0) seen = 0;\n"
    body += "__syncthreads();\nif (i < n) {\nseen = seen + 1;\nout[i] = 2 * x[i];\n}"
    exercise = launched(128)
    result = judge.grade(exercise, Cells({"doubled": cell(body)}))
    assert result.words == "not sound" and "race on seen[0]" in result.message
    atomic = body.replace("seen = seen + 1", "atomicAdd(&seen, 1)")
    assert judge.grade(exercise, Cells({"doubled": cell(atomic)})).passed


def test_a_kernel_that_never_ends_is_said_to(grade_both: GradeBoth) -> None:
    result = grade_both(cell("while (n > 0) { }"), launched(32))
    assert result.status == "timeout" and result.earned == 0
    assert gate(result, "sound").status == "timeout"


def test_what_does_not_end_is_not_run_again(
    judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []
    monkeypatch.setattr(Run, "try_case", lambda *case: tried.append("again"))
    body = "out[0] = threadIdx.x;\nwhile (n > 0) { }"
    result = judge.grade(launched(64), Cells({"doubled": cell(body)}))
    assert result.words == "not sound" and "race on out[0]" in result.message
    assert "Besides: timeout on line" in result.message and not tried


def test_it_moves_too_much_and_is_right_all_the_same(judge: Judge) -> None:
    # Neighbours lie eight floats apart: each lane has a sector of its own.
    body = (
        "int k = threadIdx.x % 16 * 8 + threadIdx.x / 16;\n\n"
        "if (k < n) out[k] = 2 * x[k];"
    )
    exercise = replace(launched(128), cases=(Case("n = 128", {"n": 128}),))
    result = judge.grade(exercise, Cells({"doubled": cell(body)}))
    assert result.words == "correct, moves too much"
    parts = {part.name: part.earned for part in result.parts}
    assert parts == {"correct": 7.5, "counts": 0.0}
    assert (
        "line 6: the global loads take 2,048 bytes in all, 4 times the ideal 512 "
        "(at most 538 earn the points): 16 sectors per request, where 4 would do."
    ) in result.message
    assert part_words(result, "counts").startswith("failed: ")
    _shown_everywhere(result)


def _shown_everywhere(result: Result) -> None:
    """Assert that every report has the figures, and the line that costs them."""
    record = Record("here", 7, "CPU", "emulator", _SANDBOX, {}, "now", [], [result])
    assert part_words(result, "counts") in plain_table(record)
    assert part_words(result, "counts") in results_json(record)["tests"][0]["output"]
    (recorded,) = record.to_json()["results"]
    row = recorded["gates"][-1]["detail"]["counts"][0]
    assert row["got"] > row["at_most"] > row["ideal"]
    for page in (html_report(record), CheckResult(result, 7)._repr_html_()):
        assert "kw-margin" in page and "▶   6" in page and "<script" not in page
    assert ">   6 | if (k &lt; n)" not in repr(CheckResult(result, 7))
    assert ">   6 | if (k < n) out[k] = 2 * x[k];" in repr(CheckResult(result, 7))


_SANDBOX = {"name": "test", "trusted": True, "detail": "", "words": "test"}


def test_barriers_and_bytes_are_counted(judge: Judge) -> None:
    counts = (
        barriers(0.5, 1),
        Count("bytes", "global", "load"),
        *shared(1, 1),
    )
    body = "int i = threadIdx.x;\n__syncthreads();\nif (i < n) out[i] = 2 * x[i];"
    exercise = replace(launched(128), counts=counts)
    result = judge.grade(exercise, Cells({"doubled": cell(body)}))
    assert result.passed, result.message
    message = gate(result, "counts").message
    assert "barriers a block: 1 (ideal 0.5)" in message
    assert "global loads: 132 bytes" in message and "no shared loads" in message
    twice = body.replace("__syncthreads();", "__syncthreads(); __syncthreads();")
    result = judge.grade(exercise, Cells({"doubled": cell(twice)}))
    assert "2 barriers" in result.message and result.earned == 7.5


def test_lanes_that_rest_are_counted(judge: Judge) -> None:
    exercise = replace(launched(128), cases=(Case("n = 128", {"n": 128}),))
    # The same values by every fourth lane at a time: no sector is touched twice.
    body = (
        "int i = threadIdx.x;\nfor (int k = 0; k < 4; ++k)\n"
        "if (i < n && i % 32 / 8 == k) out[i] = 2 * x[i];"
    )
    result = judge.grade(exercise, Cells({"doubled": cell(body)}))
    assert result.earned == 7.5
    assert (
        "line 6: the global stores take 16 requests in all, 4 times the ideal 4 "
        "(at most 7.6 earn the points): on average 8 active lanes per request. Let all"
    ) in result.message


def test_the_same_seed_gives_the_same_words(judge: Judge) -> None:
    body = "int i = threadIdx.x;\nif (i <= n) out[i] = 2 * x[i];"
    found = []
    for _ in range(2):
        data = judge.grade(launched(64), Cells({"doubled": cell(body)})).to_json()
        del data["seconds"]
        found.append(data)
    assert found[0] == found[1] and found[0]["words"] == "not sound"


TRITON = replace(
    make_exercise(counts=moves()),
    prelude="import torch\nimport kernelwright as kw\n"
    "import triton\nimport triton.language as tl\n",
)
TRITON_CELL = """# exercise: twice
@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(out_ptr + i, 2 * x, mask=i < n)


def twice(x):
    out = torch.empty_like(x)
    kernel[(1,)](x, out, x.numel(), BLOCK=128)
    return out
"""


def test_triton_is_watched_in_its_interpreter(judge: Judge) -> None:
    pytest.importorskip("triton")
    result = judge.grade(TRITON, Cells({"twice": TRITON_CELL}))
    assert result.passed and result.earned == result.possible == 10.0, result.message
    assert gate(result, "sound").detail["figures"]["5"] == ["load x_ptr: 132 bytes"]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "x_ptr + i, mask=i < n",
            "x_ptr + i",
            "line 5: program (0, 0, 0) reads x_ptr[",
        ),
        ("2 * x, mask=i < n", "2 * x", "line 6: program (0, 0, 0) writes out_ptr[33]"),
        ("x_ptr + i, mask=i < n", "x_ptr - i, mask=i < n", "reads x_ptr[-1]"),
    ],
)
def test_a_mask_that_is_missing_is_named(
    grade_both: GradeBoth, old: str, new: str, words: str
) -> None:
    pytest.importorskip("triton")
    result = grade_both(TRITON_CELL.replace(old, new), TRITON)
    assert result.words == "not sound" and result.earned == 0.0
    assert words in result.message and "outside of" in result.message


def test_a_read_of_an_output_that_is_still_empty_is_named(judge: Judge) -> None:
    pytest.importorskip("triton")
    cell = TRITON_CELL.replace("x_ptr + i, mask", "out_ptr + i, mask")
    result = judge.grade(TRITON, Cells({"twice": cell}))
    assert result.words == "not sound"
    assert "line 5: program (0, 0, 0) reads out_ptr[0], which nobody has written" in (
        result.message
    )


def test_the_interpreters_own_faults_are_said_beside_a_wrong_value(
    judge: Judge,
) -> None:
    pytest.importorskip("triton")
    change = ("2 * x", "(x.to(tl.bfloat16) + x.to(tl.bfloat16)).to(tl.float32)")
    result = judge.grade(TRITON, Cells({"twice": TRITON_CELL.replace(*change)}))
    assert result.words == "wrong"
    assert "Triton's interpreter" in result.message and "bf16" in result.message
    # A right answer is not told what else might be wrong.
    right = judge.grade(TRITON, Cells({"twice": TRITON_CELL}))
    assert "interpreter" not in right.message


def test_a_function_without_a_kernel_is_not_checked(judge: Judge) -> None:
    right = "# exercise: twice\ndef twice(x):\n    return 2 * x\n"
    result = judge.grade(TRITON, Cells({"twice": right}))
    assert result.passed and gate(result, "sound").status == "not checked"
    assert (result.earned, result.possible) == (7.5, 7.5)


def test_what_the_emulator_cannot_run_is_not_checked_on_a_gpu(
    judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    trouble = {"ok": False, "kind": "compile", "message": "line 9: no TMA here\nmore"}
    monkeypatch.setattr(sound, "prepare", lambda *a, **k: trouble)
    run: Any = _Run(judge)
    made, trace = sound.check_sound(run, None)  # type: ignore[arg-type]
    assert (made.status, trace) == ("not checked", None)
    assert made.message == "the emulator cannot run it: line 9: no TMA here"
    assert check_counts(run, trace).status == "not checked"


class _Run:
    """Stands for an exercise's way on a machine with a GPU."""

    def __init__(self, judge: Judge) -> None:
        self.exercise, self.device, self.server = COUNTED, "cuda", judge.server
        self.cells, self.deadlines = (), judge.deadlines
        self.kind = kind_of(COUNTED)


def test_without_a_trace_nothing_is_passed(
    judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge.unfit("CUDA C++")  # before what it would be asked with is replaced
    for answer in ({"ok": True}, {"ok": True, "lines": [], "problems": 3}):
        monkeypatch.setattr(sound, "_ask", lambda *a, _answer=answer: _answer)
        result = judge.grade(COUNTED, Cells({"doubled": RIGHT_KERNEL}))
        assert result.words == "not sound" and result.earned == 0.0
        assert "no trace of the grader's" in result.message
    # Nothing moved, says the worker: then nothing can have been written.
    empty = {"ok": True, **_answer()}
    monkeypatch.setattr(sound, "_ask", lambda *a: empty)
    result = judge.grade(COUNTED, Cells({"doubled": RIGHT_KERNEL}))
    assert "The trace saw no global loads" in result.message
    assert result.earned == 7.5


def _line(**changes: object) -> dict[str, object]:
    line: dict[str, object] = {"line": 4, "space": "global", "op": "load"}
    line |= {"requests": 2, "sectors": 8, "wavefronts": 0, "bytes": 256}
    line |= {"ideal_sectors": 4.0, "ideal_wavefronts": 0.0, "buffer": "x"}
    return {**line, **changes}


def _answer(*lines: object, **changes: object) -> dict[str, Any]:
    said = {"lines": list(lines), "problems": [], "by_block": {}, "launches": 1}
    said["sharing"] = []
    return {**said, **changes}


def test_a_trace_is_read_from_plain_numbers_only() -> None:
    trace = read_trace(_answer(_line(), _line(op="async copy", sectors=2)))
    assert trace.total("moved", "global", "load") == 32 * (8 + 2)
    assert trace.total("bytes", "global", "store") is None
    assert trace.worst("moved", "global", "load") == 4
    assert isinstance(trace, Trace)
    for bad in (
        _answer(_line(requests=-1)),
        _answer(_line(requests=True)),
        _answer(_line(sectors=1.5)),
        _answer(_line(space="heap")),
        _answer(_line(ideal_sectors=float("nan"))),
        _answer(_line(bytes=1 << 60)),
        _answer("line"),
        _answer(problems=[{"kind": "race"}]),
        _answer(by_block={"barriers": "0"}),
        _answer(by_block={"shuffles": -1.0}),
        _answer(by_block=[0.0]),
        _answer(sharing=[{"buffer": "x", "op": "load", "threads": 2.5}]),
        _answer(*[_line()] * 2000),
        {},
    ):
        with pytest.raises(NoTrace):
            read_trace(bad)
