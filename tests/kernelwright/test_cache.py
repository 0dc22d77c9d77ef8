from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelwright.cache import cache_root, cached, digest


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path))
    return tmp_path


def test_what_is_cached_is_made_once() -> None:
    made = []

    def produce(path: Path) -> None:
        made.append(path)
        path.write_text("content")

    first = cached("room", digest("key"), ".txt", produce)
    assert cached("room", digest("key"), ".txt", produce) == first
    assert (first.read_text(), len(made)) == ("content", 1)


def test_a_part_s_end_is_part_of_the_key() -> None:
    assert digest("ab", "c") != digest("a", "bc")
    assert digest("ab") == digest(b"ab")


def test_what_failed_leaves_nothing(own_cache: Path) -> None:
    def fail(path: Path) -> None:
        path.write_text("half")
        raise ValueError("disk full")

    with pytest.raises(ValueError, match="disk full"):
        cached("room", "key", ".txt", fail)
    assert [p for p in own_cache.rglob("*") if p.is_file()] == []


def test_processes_that_miss_at_once_all_get_a_whole_file(
    own_cache: Path, start_lean: Callable[[str], subprocess.Popen[str]]
) -> None:
    code = """
    from kernelwright.cache import cached
    import time
    def slow(path):
        with open(path, "w") as file:
            for _ in range(20):
                file.write("x" * 1000)
                time.sleep(0.005)
    print(len(cached("room", "key", ".txt", slow).read_text()))
    """
    runs = [start_lean(code) for _ in range(4)]
    assert [run.communicate()[0].strip() for run in runs] == ["20000"] * 4
    assert [run.returncode for run in runs] == [0] * 4
    assert len(list((own_cache / "room").rglob("*.txt"))) == 1


def test_the_user_s_own_cache_is_the_default(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("KERNELWRIGHT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_root() == tmp_path / "xdg" / "kernelwright"
