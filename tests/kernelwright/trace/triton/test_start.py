"""Triton's interpreter where there is no GPU: whatever is imported first, any numpy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import kernelwright as kw
from kernelwright.trace.triton import start

triton = pytest.importorskip("triton")
import triton.language as tl
from triton.runtime import interpreter

ROOT = Path(kw.__file__).parent.parent
LATE = """\
import sys
import torch
import triton
import triton.language as tl

# Triton's own functions are made to be compiled by now, and so is this kernel.
@triton.jit
def early(x, out, SIZE: tl.constexpr):
    values = tl.zeros([SIZE], tl.float32) + tl.load(x + tl.arange(0, SIZE))
    tl.store(out, tl.sum(values, 0) + values.sum())

import kernelwright as kw

@triton.jit
def late(x, out, SIZE: tl.constexpr):
    values = tl.zeros([SIZE], tl.float32) + tl.load(x + tl.arange(0, SIZE))
    tl.store(out, tl.sum(values, 0) + values.sum())

for kernel in (early, late):
    x, out = torch.ones(32), torch.zeros(1)
    kernel[(1,)](x, out, SIZE=32)
    assert out.item() == 64, (kernel, out)
    out.zero_()
    assert not kw.trace_triton(kernel)[(1,)](x, out, SIZE=32).problems
    assert out.item() == 64, (kernel, out)
"""
TUNED = """\
import torch
{first}
{second}
import triton.language as tl
from triton.language.extra import libdevice
from triton.language.extra.cuda import libdevice as of_cuda

@triton.autotune([triton.Config(dict(SIZE=n)) for n in (8, 16)], key=["n"])
@triton.jit
def bend(x, out, n, SIZE: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    value = tl.load(x + i, mask=i < n)
    bent = libdevice.pow(libdevice.tanh(value), 3.0) + of_cuda.erf(value)
    tl.store(out + i, bent, mask=i < n)

x, out = torch.randn(20), torch.empty(20)
bend[lambda meta: (triton.cdiv(20, meta["SIZE"]),)](x, out, 20)
torch.testing.assert_close(out, x.tanh() ** 3 + x.erf())
assert len(bend.configs) == 2
"""
LEAN = """\
import sys
import kernelwright
assert not any(name.split(".")[0] == "triton" for name in sys.modules)
"""


def run(tmp_path: Path, text: str) -> None:
    """Run a program in a process that has imported nothing yet."""
    program = tmp_path / "program.py"
    program.write_text(text)
    clean = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    clean |= {"PYTHONPATH": str(ROOT), "KERNELWRIGHT_BACKEND": "emulator"}
    done = subprocess.run(
        [sys.executable, str(program)], env=clean, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_a_triton_that_was_imported_first_is_interpreted(tmp_path: Path) -> None:
    run(tmp_path, LATE)


@pytest.mark.parametrize("order", [1, -1], ids=["early", "late"])
def test_what_a_gpu_alone_could_time_or_compute(tmp_path: Path, order: int) -> None:
    first, second = ("import triton", "import kernelwright as kw")[::order]
    run(tmp_path, TUNED.format(first=first, second=second))


@pytest.mark.skipif(
    (start._installed() or start._MENDED) < start._MENDED,
    reason="an older Triton is mended when kernelwright is imported",
)
def test_a_triton_that_fits_is_not_imported(tmp_path: Path) -> None:
    run(tmp_path, LEAN)


@triton.jit
def in_steps(x: Any, out: Any, n: Any, SIZE: tl.constexpr) -> None:
    """Add up in a loop whose bound is a tensor."""
    lanes = tl.arange(0, SIZE)
    total = tl.load(out + lanes) * 0
    for first in tl.range(0, n, SIZE):
        total += tl.load(x + first + lanes)
    tl.store(out + lanes, total)


def test_a_bound_is_read_where_numpy_refuses_an_array(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Triton before 3.7 makes an ``int`` of an array, as numpy before 2.4 allowed."""
    patch = interpreter._patch_lang_tensor

    def older(tensor: Any, *scope: Any) -> None:
        def index(self: Any) -> int:
            if self.handle.data.ndim:
                raise TypeError("only 0-dimensional arrays can be converted")
            return int(self.handle.data)

        patch(tensor, *scope)
        tensor.__index__ = index

    def added_up() -> torch.Tensor:
        x, out = torch.arange(96.0), torch.zeros(32)
        in_steps[(1,)](x, out, 96, SIZE=32)
        return out

    right = torch.arange(96.0).view(3, 32).sum(0)
    monkeypatch.setattr(interpreter, "_patch_lang_tensor", older)
    x, out = torch.arange(96.0), torch.zeros(32)
    kw.trace_triton(in_steps)[(1,)](x, out, 96, SIZE=32)
    assert torch.equal(out, right)
    if kw.cuda.backend() == "gpu":
        return  # nothing but a trace is interpreted there
    with pytest.raises(Exception, match="only 0-dimensional"):
        added_up()
    monkeypatch.setattr(interpreter, "_patch_lang_tensor", start.with_index(older))
    assert torch.equal(added_up(), right)
