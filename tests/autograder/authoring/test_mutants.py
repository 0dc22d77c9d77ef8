"""Generic mutants: what is made of a text, and what is said of those that survive."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from autograder.authoring.grade_many import grade_many, judges
from autograder.authoring.mistakes import EQUIVALENT, MistakeError, mistakes, record_of
from autograder.authoring.mutants import Mutant, equivalent, mutants
from autograder.authoring.mutate_cuda import cuda_edits
from autograder.authoring.mutate_python import python_edits
from autograder.authoring.mutation import drawn, judge_mutants, report
from autograder.exercise import Exercise
from autograder.exercises import all_exercises
from autograder.regions import ROOT, cell_source

EXERCISES = all_exercises()
ADD_ONE = EXERCISES["add_one"]


def made(text: str, *, python: bool = False) -> dict[str, str]:
    """Return each mutant of a text with its kind."""
    edits = python_edits if python else cuda_edits
    return {e.made(text): e.kind for e in edits(text, ((0, len(text)),))}


CUDA = {
    "statement": ("n; out[i] = 2;", "n; ;", "statement dropped"),
    "call": ("kw::put<4>(x);", ";", "barrier or fence taken out"),
    "barrier": ("__syncthreads();", ";", "barrier or fence taken out"),
    "guard": ("if (p) f();", "if (true) f();", "guard taken out"),
    "else": ("if (p) f(); else g();", "if (p) f(); else ;", "statement dropped"),
    "strict": ("p = i < n;", "p = i <= n;", "comparison"),
    "turned": ("p = i < n;", "p = i > n;", "comparison"),
    "number": ("int i = 8;", "int i = 7;", "number off by one"),
    "float": ("float f = 0.5f;", "float f = 1.5f;", "number off by one"),
    "mask": ("f(0xffffffffu);", "f(0x7fffffffu);", "number off by one"),
    "axis": ("int i = threadIdx.x;", "int i = threadIdx.y;", "x for y"),
    "name": (
        "void f(int a, int b) { g[b]; }",
        "void f(int a, int b) { g[a]; }",
        "x for y",
    ),
    "operator": ("a += b * c;", "a += b + c;", "operator"),
    "forgets": ("a += b;", "a = b;", "operator"),
    "exchanged": (
        "d = a * v[i].x / (b - c);",
        "d = a * (b - c) / v[i].x;",
        "operand exchanged",
    ),
    "arguments": (
        "v = __shfl_xor_sync(m, v, 16);",
        "v = __shfl_xor_sync(m, 16, v);",
        "operand exchanged",
    ),
    "conjunct": ("p = (a < 1 && f(b, c));", "p = (f(b, c));", "condition dropped"),
    "choice": ("v = i < n ? x[i] : 0;", "v = true ? x[i] : 0;", "condition dropped"),
    "sign": ("v = -INFINITY;", "v = INFINITY;", "sign dropped"),
    "block": (
        "for (;;) { f(); }",
        "for (;;) { f();  break; }",
        "loop cut to one round",
    ),
    "line": (
        "for (;;) if (p) f();",
        "for (;;) { if (p) f(); break; }",
        "loop cut to one round",
    ),
    "function": (
        "__device__ int f(int a) {\n    return a;\n}",
        "__device__ int f(int a) {\n    ;\n}",
        "statement dropped",
    ),
}


@pytest.mark.parametrize(("text", "mutant", "kind"), CUDA.values(), ids=CUDA)
def test_cuda(text: str, mutant: str, kind: str) -> None:
    assert made(text + " ")[mutant + " "] == kind


def test_what_is_no_code_stays() -> None:
    text = '#pragma unroll 4\nint a; // 1 < 2\nchar b[] = "a < 3";\nf<float>(x); '
    assert set(made(text)) == {
        text.replace("f<float>(x);", ";"),
    }


def test_cpp_is_read_as_what_it_is() -> None:
    of_an_answer = [m for m in mutants(EXERCISES["pack_int4"]) if "|=" in m.name]
    assert "word |= code << 4 * k; -> word = code << 4 * k;" in {
        mutant.name for mutant in of_an_answer
    }


PYTHON = {
    "statement": ("f(x)", "pass", "statement dropped"),
    "again": ("a = f()\na = a + b", "a = f()\npass", "statement dropped"),
    "guard": ("if p:\n    f()", "if True:\n    f()", "guard taken out"),
    "strict": ("p = i < n", "p = i <= n", "comparison"),
    "identity": ("p = x is None", "p = x is not None", "comparison"),
    "number": ("i = 8", "i = 7", "number off by one"),
    "mask": ("x = tl.load(p, mask=m)", "x = tl.load(p)", "mask taken out"),
    "option": ("x = y.sum(dim=1)", "x = y.sum()", "argument dropped"),
    "operator": ("a += b * c", "a += b + c", "operator"),
    "forgets": ("a += b", "a = b", "operator"),
    "exchanged": ("a = (b + 1) // c", "a = (c) // (b + 1)", "operand exchanged"),
    "conjunct": ("p = a and b and c", "p = a and c", "condition dropped"),
    "masks": ("p = (i < n) & (j < m)", "p = i < n", "condition dropped"),
    "choice": ("v = a if p else b", "v = b", "condition dropped"),
    "axes": ("v = x[:, None]", "v = x[None, :]", "x for y"),
    "range": (
        "for i in range(a, n, 4):\n    f(i)",
        "for i in range(a, (a) + (4), 4):\n    f(i)",
        "loop cut to one round",
    ),
    "each": (
        "for i in x:\n    f(i)",
        "for i in x:\n    f(i)\n    break",
        "loop cut to one round",
    ),
    "parameter": (
        "def f(a: int, b: int):\n    return b",
        "def f(a: int, b: int):\n    return a",
        "x for y",
    ),
    "bytes": ("é = 'é'; i = 1 < n", "é = 'é'; i = 1 > n", "comparison"),
}


@pytest.mark.parametrize(("text", "mutant", "kind"), PYTHON.values(), ids=PYTHON)
def test_python(text: str, mutant: str, kind: str) -> None:
    assert made(text, python=True)[mutant] == kind


def test_what_a_learner_reads_is_no_work() -> None:
    text = "def f(n: int = 1):\n    '''Say 1.'''\n    raise ValueError(f'{n + 1}')"
    assert made(text, python=True) == {}


each = pytest.mark.parametrize("exercise", EXERCISES.values(), ids=EXERCISES)


@each
def test_each_mutant_has_a_name_and_a_text_of_its_own(exercise: Exercise) -> None:
    found = mutants(exercise)
    assert len(found) >= 5
    assert len({m.name for m in found}) == len({m.cell for m in found}) == len(found)
    assert cell_source(exercise, solved=True) + "\n" not in {m.cell for m in found}


@each
def test_what_is_said_to_be_right_is_a_mutant(exercise: Exercise) -> None:
    equivalent(exercise)


def _with(tmp_path: Path, text: str) -> Path:
    (tmp_path / "solutions").symlink_to(ROOT / "solutions")
    path = record_of(ADD_ONE, tmp_path)
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return tmp_path


def test_reasons_are_no_mistakes(tmp_path: Path) -> None:
    name = mutants(ADD_ONE)[0].name
    root = _with(tmp_path, f"[{EQUIVALENT}]\n'{name}' = 'So it is.'\n")
    assert equivalent(ADD_ONE, root) == {name: "So it is."}
    assert mistakes(ADD_ONE, root) == []


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("'a -> b' = 'why'", "no such mutant of add_one"),
        ("'a -> b' = ''", "its reason"),
    ],
)
def test_a_reason_that_explains_nothing(tmp_path: Path, line: str, says: str) -> None:
    root = _with(tmp_path, f"[{EQUIVALENT}]\n{line}\n")
    with pytest.raises(MistakeError, match=says):
        equivalent(ADD_ONE, root)


def test_a_sample_is_drawn_by_the_commit() -> None:
    chosen = list(EXERCISES.values())[:6]
    assert drawn(chosen, 7) == drawn(chosen, 7)
    assert len(drawn(chosen, 7)) == 7 < len(drawn(chosen))


def test_a_survivor_and_a_reason_that_is_not_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of two rejected mutants one is said to be right; the answer is a survivor."""
    first, second = mutants(ADD_ONE)[:2]
    answer = cell_source(ADD_ONE, solved=True)
    survivor = Mutant(ADD_ONE, "none", "'x' -> \"x\\n\"", 4, f"{answer}\n// mine\n")
    monkeypatch.setattr(
        "autograder.authoring.mutation.equivalent", lambda _: {second.name: "wrong"}
    )
    with judges(1) as ready:
        done = list(judge_mutants([first, second, survivor], ready))
    assert [one.fate for one in done] == ["rejected", "stale", "survives"]
    told = "\n".join(report(done))
    assert second.name in told and "33.3%" in told
    (pasted,) = [line for line in told.splitlines() if "why it is right" in line]
    assert tomllib.loads(pasted) == {survivor.name: "why it is right"}


def test_results_come_in_the_order_of_the_answers() -> None:
    right = cell_source(ADD_ONE, solved=True)
    wrong = right.replace("1.0f", "2.0f")
    with judges(2) as ready:
        results = list(grade_many(ADD_ONE, [wrong, right, wrong, right], ready))
    assert [result.passed for result in results] == [False, True, False, True]


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.timeout(900)  # 60 mutants and the answers that they are of, side by side
def test_a_sample_of_the_mutants_earns_no_full_points() -> None:
    """Another sample at each commit, of the exercises whose survivors are explained."""
    explained = [e for e in EXERCISES.values() if equivalent(e) is not None]
    with judges() as ready:
        done = list(judge_mutants(drawn(explained, 60), ready))
    bad = [one for one in done if one.fate in ("survives", "stale")]
    assert not bad, "\n".join(report(bad))
