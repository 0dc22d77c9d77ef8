"""The set-up's one clear line for each thing that a machine may lack."""

from __future__ import annotations

import importlib.util
import itertools
import os
import stat
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "tools" / "bootstrap.py"


@pytest.fixture
def bootstrap(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    monkeypatch.setenv("KERNELWRIGHT_VENV", str(tmp_path / "venv"))
    spec = importlib.util.spec_from_file_location("bootstrap", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_a_python_that_is_too_old(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap, "version", lambda path: (3, 8))
    line = bootstrap.missing(["cpu"])
    assert "too old: wanted 3.11 or newer. Mend: install python3" in line


def test_a_newer_python_is_found_beside_an_old_one(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    new = write_program(
        tmp_path / "python3.12", f'#!/bin/sh\nexec {sys.executable} "$@"\n'
    )
    monkeypatch.setattr(bootstrap.sys, "executable", "/bin/false")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert bootstrap.interpreter() == str(new)


def test_no_venv_module(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # A Python that answers for its version and has no venv, as Debian's bare one.
    fake = write_program(
        tmp_path / "python3",
        '#!/bin/sh\ncase "$2" in *ensurepip*) exit 1;; *) echo 3 11;; esac\n',
    )
    monkeypatch.setattr(bootstrap.sys, "executable", str(fake))
    line = bootstrap.missing(["cpu"])
    assert "has no venv module. Mend: apt-get install python3-venv" in line


def test_no_compiler(
    bootstrap: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(bootstrap, "host_compiler", lambda: None)
    line = bootstrap.missing(["cpu"])
    assert "No C++ compiler" in line and "apt-get install g++" in line
    assert bootstrap.missing(["gpu13"]) is None
    assert "still run on the GPU" in capsys.readouterr().out


def test_no_disk(bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"free": 1.5e9})()
    monkeypatch.setattr(bootstrap.shutil, "disk_usage", lambda path: usage)
    line = bootstrap.missing(["cpu"])
    assert line.startswith("1.5 GB free on this disk: wanted 6 GB")
    assert "KERNELWRIGHT_VENV=" in line


@pytest.mark.parametrize(
    ("answer", "extra"),
    [("CUDA Version: 12.4", "gpu"), ("CUDA Version: 13.0", "gpu13"), ("", "cpu")],
)
def test_the_driver_decides_the_extra(
    bootstrap: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    answer: str,
    extra: str,
) -> None:
    write_program(tmp_path / "nvidia-smi", f"#!/bin/sh\necho '{answer}'\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert bootstrap.machine_extra() == extra


def test_without_a_driver_s_tool_the_machine_has_no_gpu(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert bootstrap.machine_extra() == "cpu"


def test_the_second_time_does_nothing(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.makedirs(bootstrap.VENV)
    extras = sorted({*bootstrap.PROFILES["learn"], bootstrap.machine_extra()})
    stamp = Path(bootstrap.VENV) / ".kernelwright-learn"
    stamp.write_text(bootstrap.fingerprint(extras))
    machine = bootstrap.machine_extra()
    monkeypatch.setattr(bootstrap, "machine_extra", lambda: machine)
    monkeypatch.setattr(bootstrap.subprocess, "Popen", None)
    assert bootstrap.main("learn") == 0


def test_what_failed_is_one_line_and_an_exit_code(tmp_path: Path) -> None:
    # The real script, on a PATH that holds a Python and nothing else.
    write_program(tmp_path / "python3", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    run = subprocess.run(
        [sys.executable, SCRIPT, "learn"],
        env={"PATH": str(tmp_path), "KERNELWRIGHT_VENV": str(tmp_path / "venv")},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 2
    assert run.stderr.startswith("Kernelwright: No C++ compiler")
    assert run.stderr.count("\n") == 1
    assert not (tmp_path / "venv").exists()


def test_every_profile_names_extras_that_exist(bootstrap: ModuleType) -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = set(project["optional-dependencies"])
    wanted = {extra for profile in bootstrap.PROFILES.values() for extra in profile}
    assert wanted | {"cpu", "gpu", "gpu13"} <= extras


def test_what_is_locked_is_what_the_project_wants() -> None:
    import tomllib

    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    lines = (ROOT / "tools/locked.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if not line.startswith("#")]
    locked = {canonicalize_name(name): version for name, version in pairs}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = project["optional-dependencies"]
    wanted = [*project["dependencies"], *itertools.chain(*groups.values())]
    for text in wanted:
        one = Requirement(text)
        version = locked.get(canonicalize_name(one.name))
        if version:  # not of what only some machines have
            assert one.specifier.contains(version), f"{text}: locked is {version}"
    # A driver decides which of these are right.
    assert not [name for name in locked if name.startswith(("cuda-", "nvidia-"))]
    assert {"torch", "triton", "numpy", "jupyterlab", "sphinx"} <= locked.keys()


@pytest.mark.parametrize(
    ("asked", "uv_code", "tools"),
    [("", 0, ["uv"]), ("", 1, ["uv", "pip"]), ("--no-index", 0, ["pip"])],
    ids=["by uv", "by pip where uv cannot", "by pip where pip is told something"],
)
def test_what_installs(
    bootstrap: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    asked: str,
    uv_code: int,
    tools: list[str],
) -> None:
    used: list[str] = []

    def run(command: list[str], env: object = None) -> int:
        used.append("uv" if command[0].endswith("/uv") else "pip")
        assert command[-3:-1] == [bootstrap.LOCK, "-e"]
        assert command[-1].endswith("[cpu,notebook]")
        assert ("--no-index" in command) == bool(asked)
        return uv_code if used[-1] == "uv" else 0

    monkeypatch.setenv("PIP_ARGS", asked)
    monkeypatch.setattr(bootstrap, "fetch_uv", lambda: True)
    monkeypatch.setattr(bootstrap, "as_pip_is_told", lambda: ([], {}))
    monkeypatch.setattr(bootstrap, "show_progress", run)
    assert bootstrap.install(["cpu", "notebook"]) == 0
    assert used == tools


def test_uv_looks_where_pip_is_told_to(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    index, certificate = "https://a.invalid/simple", tmp_path / "ca.crt"
    said = (
        f":env:.find-links='{tmp_path}'\nglobal.index-url='{index}'\n"
        f"global.extra-index-url='file:///not/there file://{tmp_path}'\n"
        f"global.cert='{certificate}'\nglobal.timeout='60'\n"
    )
    answer = write_program(tmp_path / "pip", f"#!/bin/sh\ncat <<'E'\n{said}E\n")
    monkeypatch.setattr(bootstrap, "pip", lambda *words: [str(answer), *words])
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    options, environment = bootstrap.as_pip_is_told()
    assert options == [
        "--index-strategy", "unsafe-best-match", "--find-links", str(tmp_path),
        "--default-index", index, "--index", f"file://{tmp_path}",
    ]  # fmt: skip
    assert environment["SSL_CERT_FILE"] == str(certificate)


def test_an_extra_is_added_once(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "venv").mkdir()
    asked: list[list[str]] = []
    monkeypatch.setattr(bootstrap, "install", lambda extras: asked.append(extras) or 0)
    assert bootstrap.add("fpga") == 0
    assert bootstrap.add("fpga") == 0
    assert asked == [["fpga"]]


def test_an_extra_that_there_is_not(
    bootstrap: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bootstrap.add("gpu") == 2
    assert "EXTRA=gpu is no extra. Wanted: fpga." in capsys.readouterr().err


def test_an_extra_that_fails_says_that_the_rest_works(
    bootstrap: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(bootstrap, "install", lambda extras: 1)
    assert bootstrap.add("fpga") == 2
    assert "all else works without it" in capsys.readouterr().err
