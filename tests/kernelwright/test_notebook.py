"""The %%cuda magic, in a shell as a notebook has it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

import kernelwright as kw
from kernelwright.cuda import Kernel, Module

# Grading needs no notebook software, so a machine may have none.
pytest.importorskip("IPython")
from IPython.core.interactiveshell import InteractiveShell

CELL = """%%cuda
__global__ void fill(float* out, float value, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = value;
}
template <typename T> __global__ void zero(T* out) { out[threadIdx.x] = T(0); }
"""


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    monkeypatch.delenv("KERNELWRIGHT_DEADLINE_S", raising=False)
    shell = InteractiveShell()
    shell.history_manager.enabled = False
    shell.run_cell("%load_ext kernelwright")
    yield shell
    os.environ.pop("KERNELWRIGHT_DEADLINE_S", None)
    shell.history_manager.end_session()


def test_a_cell_binds_its_kernels(shell: InteractiveShell) -> None:
    assert shell.run_cell(CELL).success
    assert isinstance(shell.user_ns["fill"], Kernel)
    assert isinstance(shell.user_ns["zero"], Module)
    device = shell.user_ns["fill"].module.device_type
    result = shell.run_cell(
        f"import torch\nout = torch.empty(10, device={device!r})\n"
        "fill[1, 32](out, 2.5, 10)\nzero['zero<float>'][1, 4](out)\nout.tolist()"
    )
    assert result.result == [0.0] * 4 + [2.5] * 6


def test_a_cell_of_cpp_binds_its_functions(shell: InteractiveShell) -> None:
    assert shell.run_cell(
        '%%cpp\nextern "C" void one(int* out) { out[0] = 1; }\n'
    ).success
    run = "import torch\nout = torch.zeros(1, dtype=torch.int32)\none(out)\nout.item()"
    assert shell.run_cell(run).result == 1
    # As the grader counts lines: the magic's is the first.
    assert shell.user_ns["one"].source.startswith("\n")


def test_an_error_names_the_cell_s_own_line(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    result = shell.run_cell(
        "%%cuda\n// exercise: x\n__global__ void k() {\n  y = 1;\n}\n"
    )
    assert isinstance(result.error_in_exec, kw.CompileError)
    # Line 1 is the magic's, as the notebook counts.
    assert result.error_in_exec.diagnostics[0].line == 4
    printed = capsys.readouterr().out
    assert "    4 |   y = 1;" in printed
    assert "Traceback" not in printed


def test_a_kernel_without_an_end_is_ended(shell: InteractiveShell) -> None:
    assert os.environ["KERNELWRIGHT_DEADLINE_S"] == "30"


@pytest.mark.parametrize(
    "cell",
    [
        "%%cuda -O3\n__global__ void k() {}\n",
        '%%cpp -O3\nextern "C" void one(int* out) { out[0] = 1; }\n',
    ],
)
def test_words_behind_the_magic_are_refused(shell: InteractiveShell, cell: str) -> None:
    result = shell.run_cell(cell)
    said = f"{cell.split()[0]} takes nothing behind it on its line, got '-O3'"
    assert said in str(result.error_in_exec)


def test_a_cell_without_a_kernel_says_so(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shell.run_cell("%%cuda\n__device__ int f() { return 1; }\n").success
    assert "no __global__ function" in capsys.readouterr().err


def test_a_slip_is_remarked_on_the_cells_own_line_once_it_is_written(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    cell = """__global__ void k(float* p, int n) {
    int i = threadIdx.x;
    if (i < n);
    p[i] = 1;
}"""
    shell.run_cell_magic("cuda", "", cell)
    assert "line 4: the ';' ends this statement" in capsys.readouterr().err
    shell.run_cell_magic("cuda", "", cell + "\n// fill me in (about 1 line)")
    assert capsys.readouterr().err == ""


def test_the_extension_can_be_unloaded(shell: InteractiveShell) -> None:
    shell.run_cell("%unload_ext kernelwright")
    assert "cuda" not in shell.magics_manager.magics["cell"]


def test_loading_it_twice_is_nothing_to_talk_about(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    shell.run_cell("%load_ext kernelwright")
    assert capsys.readouterr() == ("", "")
    assert shell.run_cell(CELL).success
    shell.run_cell("%unload_ext kernelwright")
    shell.run_cell("%load_ext kernelwright")
    assert "cuda" in shell.magics_manager.magics["cell"]
    # Others' notices are theirs.
    shell.run_cell("%load_ext autoreload\n%load_ext autoreload")
    assert "already loaded" in capsys.readouterr().out
