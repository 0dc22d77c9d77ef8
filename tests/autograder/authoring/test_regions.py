"""Regions: stub and answer from one text, and an error for whatever is amiss."""

from __future__ import annotations

from pathlib import Path

import pytest

from autograder.exercises import all_exercises
from autograder.regions import (
    ROOT,
    RegionError,
    cell_source,
    parse_regions,
    read_region,
)

CU = Path("a.cu")
PY = Path("a.py")


def one(text: str, path: Path = CU) -> tuple[str, str]:
    (region,) = parse_regions(text, path).values()
    return region.text_stub, region.text_solved


def test_stub_and_answer_differ_by_the_hole_alone() -> None:
    text = (
        "// [exercise:k]\n"
        "__global__ void k() {\n"
        "    int a;\n"
        "    // [hole]\n"
        "    // why\n"
        "    a = 1;\n"
        "\n"
        "    a = 2;\n"
        "    // [/hole]\n"
        "}\n"
        "// [/exercise]\n"
    )
    stub, solved = one(text)
    assert stub == (
        "__global__ void k() {\n    int a;\n    // fill me in (about 2 lines)\n}"
    )
    assert solved == (
        "__global__ void k() {\n    int a;\n    // why\n    a = 1;\n\n    a = 2;\n}"
    )


def test_where_the_answers_stand_in_the_solved_text() -> None:
    text = (
        "// [exercise:k]\n\n// [hole]\nint a;\n\n// [/hole]\nint b;\n"
        "// [hole]\nint c;\nint d;\n// [/hole]\n\n// [/exercise]\n"
    )
    (region,) = parse_regions(text, CU).values()
    answers = [region.text_solved[low:high] for low, high in region.filled]
    assert answers == ["int a;\n", "int c;\nint d;"]


def test_a_detective_gets_the_broken_code_and_no_word_more() -> None:
    text = (
        "// [exercise:k]\n"
        "void k() {\n"
        "    // [hole]\n"
        "    // [broken]\n"
        "    // if (x)\n"
        "    //     y();\n"
        "    //\n"
        "    // [/broken]\n"
        "    z();\n"
        "    // [/hole]\n"
        "}\n"
        "// [/exercise]\n"
    )
    stub, solved = one(text)
    assert stub == "void k() {\n    if (x)\n        y();\n\n}"
    assert solved == "void k() {\n    z();\n}"


@pytest.mark.parametrize(
    ("head", "stands"),
    [
        ("def f(x):\n", "raise NotImplementedError"),
        ('def f(x):\n    """Say what."""\n', "raise NotImplementedError"),
        ("@triton.jit\ndef f(x):\n", "pass"),
        ("def f(x):\n    y = x\n", None),
    ],
)
def test_a_python_body_is_never_empty(head: str, stands: str | None) -> None:
    hole = "    # [hole]\n    return x\n    # [/hole]\n"
    stub, _ = one(f"# [exercise:f]\n{head}{hole}# [/exercise]\n", PY)
    lines = stub.splitlines()
    assert "    # fill me in (about 1 line)" in lines
    assert lines[-1] == (
        f"    {stands}" if stands else "    # fill me in (about 1 line)"
    )
    compile(stub, "stub", "exec")


def test_only_the_empty_one_of_two_holes_raises() -> None:
    text = (
        "# [exercise:f]\n"
        "def f(x):\n"
        "    y = 0\n"
        "    # [hole]\n"
        "    y = x\n"
        "    # [/hole]\n"
        "    if y:\n"
        "        # [hole]\n"
        "        y += 1\n"
        "        # [/hole]\n"
        "    return y\n"
        "# [/exercise]\n"
    )
    stub, _ = one(text, PY)
    assert stub.count("raise NotImplementedError") == 1
    assert "        raise NotImplementedError\n    return y" in stub


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("// [exercise:a]\n// [hole]\nx\n// [/hole]\n", 1, "has no [/exercise]"),
        ("// [exercise:a]\nx\n// [/exercise]\n", 1, "has no [hole]"),
        ("// [exercise]\n", 1, "needs its id"),
        ("// [hole]\n", 1, "stands outside"),
        ("// [exercise:a]\n// [exercise:b]\n", 2, "begins inside [exercise:a]"),
        ("// [exercise:a]\n// [hole]\n// [hole]\n", 3, "inside the hole of line 2"),
        ("// [exercise:a]\n// [/hole]\n", 2, "without a [hole]"),
        ("// [exercise:a]\n// [hole]\n// [/hole]\n", 2, "no answer in it"),
        ("// [exercise:a]\n// [hole]\nx\n// [/exercise]\n", 2, "has no [/hole]"),
        ("// [exercise:a]\n// [broken]\n", 2, "belongs inside a [hole]"),
        ("// [exercise:a]\n// [hole]\n// [/broken]\n", 3, "without a [broken]"),
        ("// [exercise:a]\n// [hole]\n// [broken]\nx\n", 4, "begins with //"),
        ("// [exercise:a]\n// [hole]\n// [broken]\n// [/hole]\n", 4, "before [/brok"),
        ("# [exercise:a]\n", 1, "a marker here begins with //"),
        ("// [exercise a]\n", 1, "not a marker"),
        ("// [ hole ]\n", 1, "not a marker"),
        ("// [hole:a]\n", 1, "takes no name"),
        ("// [/exercise]\n", 1, "without an [exercise"),
    ],
)
def test_what_is_amiss_is_named_with_its_line(text: str, line: int, says: str) -> None:
    with pytest.raises(RegionError) as caught:
        parse_regions(text, CU)
    assert str(caught.value).startswith(f"a.cu:{line}: ")
    assert says in str(caught.value)


def test_an_id_stands_once_in_a_file() -> None:
    region = "// [exercise:a]\n// [hole]\nx\n// [/hole]\n// [/exercise]\n"
    with pytest.raises(RegionError, match=r"a\.cu:6: .*twice"):
        parse_regions(region * 2, CU)


def test_a_hole_where_python_wants_an_expression_is_refused() -> None:
    text = "# [exercise:a]\nx = (\n# [hole]\n1\n# [/hole]\n)\n# [/exercise]\n"
    with pytest.raises(RegionError, match="a hole stands where a statement may"):
        parse_regions(text, PY)


def test_a_file_without_the_region_says_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "a.cu"
    path.write_text("// [exercise:a]\n// [hole]\nx\n// [/hole]\n// [/exercise]\n")
    with pytest.raises(RegionError, match="there is: a"):
        read_region(path, "b")
    with pytest.raises(RegionError, match="no such file"):
        read_region(tmp_path / "none.cu", "a")


@pytest.mark.parametrize("exercise_id", list(all_exercises()))
def test_solving_an_exercise_only_fills_its_holes(exercise_id: str) -> None:
    """Every line of a stub, its stand-ins apart, is a line of the answer, in order."""
    exercise = all_exercises()[exercise_id]
    stub = cell_source(exercise, False).splitlines()
    solved = cell_source(exercise, True).splitlines()
    source = (ROOT / exercise.source).read_text()
    broken = {
        line.strip().removeprefix("//").removeprefix("#").strip()
        for line in source.splitlines()
    }
    at = 0
    for line in stub:
        if "fill me in" in line or line.strip() in (
            "pass",
            "raise NotImplementedError",
        ):
            continue
        if line in solved[at:]:
            at = solved.index(line, at) + 1
        else:
            # Only a detective's stub holds lines that the answer has not.
            assert exercise.kind == "detective", f"the answer lost {line!r}"
            assert line.strip() in broken
    assert stub[0] == solved[0]
    assert f"exercise: {exercise_id}" in "\n".join(stub[:2])
    assert stub != solved
