"""Triton kernels that the interpreter runs: does the compiler take them too?"""

from __future__ import annotations

from typing import Any

import pytest
from hostile import fails

from autograder.exercises import all_exercises
from autograder.judge.judge import Judge
from autograder.judge.kernels import kernels_only
from autograder.submission.submitted import Cells

pytest.importorskip("triton")

PRELUDE = "import torch\nimport triton\nimport triton.language as tl\n"
KERNEL = """LOG = tl.constexpr(0.6931471805599453)
@triton.jit
def part(x):
    return tl.sum(tl.exp(x), 0)


@triton.jit
def kernel(x_ptr, out_ptr, n, scale, BLOCK: tl.constexpr, KIND: tl.constexpr = None):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    x = x * LOG * scale
    tl.store(out_ptr, part(x).to(KIND))
"""
LAUNCH = {
    "kernel": "kernel",
    "module": "exercise",
    "arguments": {
        "x_ptr": {"type": "*fp32"},
        "out_ptr": {"type": "*fp16"},
        "n": {"type": "i32", "value": 60},
        "scale": {"type": "fp32", "float": (0.5).hex()},
        "BLOCK": {"type": "i32", "value": 64},
        "KIND": {"dtype": "fp16"},
    },
}


def compiled(judge: Judge, source: str, launch: Any = LAUNCH) -> Any:
    """Have a cell's kernels compiled, in a worker that runs nothing of the cell's."""
    request = {
        "op": "kernels",
        "prelude": PRELUDE,
        "cells": [{"id": "mine", "source": kernels_only(source)}],
        "launches": [launch],
    }
    with judge.server.spawn() as worker:
        answer, _ = worker.ask(request, deadline_s=30.0, sizes=())
    assert answer["ok"] is True, answer
    return answer


def test_operations_are_those_of_all_that_is_called(judge: Judge) -> None:
    made = compiled(judge, KERNEL)["operations"]
    assert {"tt.load", "tt.store", "tt.reduce", "math.exp"} <= set(made)
    assert "tt.dot" not in made


def test_what_nothing_uses_is_no_operation(judge: Judge) -> None:
    idle = KERNEL.replace("    x = x * LOG", "    tl.exp(x)\n    x = x * LOG")
    idle = idle.replace("tl.sum(tl.exp(x), 0)", "tl.sum(x, 0)")
    made = compiled(judge, idle)["operations"]
    assert "tt.reduce" in made and "math.exp" not in made


REFUSED = {
    "import": ("    import numpy", "unsupported AST node type: Import"),
    "try": ("    try:\n        x = x\n    finally:\n        pass", "type: Try"),
    "torch": ("    x = torch.softmax(x, 0)", "softmax()"),
    "method": ("    x.handle.data[:] = 0", ""),
    "number": ("    x = x * RATE", "number as RATE = tl.constexpr(...)"),
    "function": ("    x = helper(x)", "put @triton.jit above a function"),
    "class": ("    x = x * Rate.value", "Rate is not defined"),
    "loop": (
        "    z = 0\n    for k in range(n):\n        z += 0.5",
        "z has initial type",
    ),
}


@pytest.mark.parametrize(("line", "says"), REFUSED.values(), ids=REFUSED)
def test_what_only_the_interpreter_takes(judge: Judge, line: str, says: str) -> None:
    above = (
        "RATE = 0.5\n\ndef helper(x):\n    return x\n\nclass Rate:\n    value = 1\n\n"
    )
    source = above + KERNEL.replace("    x = x * LOG", f"{line}\n    x = x * LOG")
    answer = compiled(judge, source)
    assert answer["kernel"] == "kernel" and says in answer["message"], answer
    at = source.splitlines().index(line.splitlines()[0]) + 1
    assert at <= answer["line"] <= at + line.count("\n"), answer


@pytest.mark.parametrize("warps", [0, 3, 17])
def test_a_launch_that_no_gpu_takes(judge: Judge, warps: int) -> None:
    told = compiled(judge, KERNEL, {**LAUNCH, "options": {"num_warps": warps}})
    assert "power of 2" in told["message"] and f"num_warps={warps}" in told["message"]
    told = compiled(judge, KERNEL, {**LAUNCH, "options": {"num_warps": 8}})
    assert "message" not in told


def test_the_line_of_a_helper_is_its_own(judge: Judge) -> None:
    answer = compiled(judge, KERNEL.replace("tl.exp(x)", "tl.expo(x)"))
    assert answer["line"] == 4 and "expo" in answer["message"], answer


def test_a_kernel_that_is_not_there(judge: Judge) -> None:
    source = KERNEL.replace("@triton.jit\ndef kernel", "@mine\ndef kernel")
    assert "no function of the cell's own" in compiled(judge, source)["message"]


def test_kernels_are_all_that_is_kept() -> None:
    source = (
        "import os, triton\nimport triton.language as tl\nfrom shutil import rmtree\n"
        "A, B = 1, 2 * math.pi\nos.abort()\nC = open('x')\nD = [os.abort()]\n"
        "@triton.autotune([], key=[])\n@triton.jit\ndef k(x, n: tl.constexpr = 3):\n"
        "    tl.store(x, n)\n\n@triton.jit\ndef late(x=os.abort()):\n    pass\n\n"
        "@os.abort()\ndef f(x):\n    return os.abort()\n\n"
        "class E:\n    os.abort()\nif os.abort():\n    pass\n"
    )
    kept = kernels_only(source)
    assert [line for line in kept.splitlines() if line] == [
        "import triton.language as tl",
        "A, B = 1, 2 * math.pi",
        "@triton.jit",
        "def k(x, n: tl.constexpr = 3):",
        "    tl.store(x, n)",
        "def late(*_): pass",
        "def f(*_): pass",
    ]
    # Every line keeps its number.
    lines = source.splitlines()
    for number, line in enumerate(kept.splitlines()):
        assert not line or "*_" in line or line == lines[number]


SOFTMAX = """# exercise: softmax_triton
HALF = 0.5
@triton.jit
def softmax_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    inside = c < columns
    x = tl.load(x_ptr + row * columns + c, mask=inside, other=float("-inf"))
    weight = tl.exp((x - tl.max(x, 0)).to(tl.float32) * 2 * HALF)
    out = weight / tl.sum(weight, 0)
    tl.store(out_ptr + row * columns + c, out.to(x.dtype), mask=inside)


def softmax_triton(x):
    out = torch.empty_like(x)
    block = triton.next_power_of_2(x.shape[1])
    softmax_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=block)
    return out
"""


def test_an_answer_that_no_gpu_could_run_earns_nothing(judge: Judge) -> None:
    exercise = all_exercises()["softmax_triton"]
    result = judge.grade(exercise, Cells({exercise.id: SOFTMAX}))
    fails(result, "line 9: softmax_kernel does not compile for a GPU: a kernel does")
    assert result.words == "does not compile for a GPU"
    whole = SOFTMAX.replace("HALF = 0.5", "HALF = tl.constexpr(0.5)")
    result = judge.grade(exercise, Cells({exercise.id: whole}))
    assert result.passed, result.message
    assert result.gate("structure").message == "its kernels, compiled for sm_90"  # type: ignore[union-attr]


ADD = """# exercise: vector_add_triton
{before}
@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr{parameter}):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    y = tl.load(y_ptr + i, mask=i < n)
    tl.store(out_ptr + i, {sum}, mask=i < n)


def vector_add_triton(x, y):
    out = torch.empty_like(x)
    n = x.numel()
    {launch}
    return out
"""
FORGETFUL = """import sys
sys.modules["autograder.worker.launches"].Launches.note = lambda *_: None
"""
DECOYS = """@triton.jit
def decoy(x_ptr, N: tl.constexpr):
    tl.store(x_ptr, tl.load(x_ptr) * 1)
"""
PLAIN = "if n: add_kernel[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)"
MANY = (
    "for k in range({} if 0 < n < 300 else 0): decoy[(1,)](x[:1].clone(), N=k)\n    "
    + PLAIN
)


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({}, ""),
        ({"parameter": ", add=None", "sum": "add(x, y)",
          "launch": PLAIN.replace("=1024)", "=1024, add=lambda a, b: a + b)")},
         "its argument add is a function, which Triton gives to no kernel"),
        ({"before": FORGETFUL}, "of no Triton kernel is it known that it was launched"),
        # The compiler comes to the last of them, too.
        ({"before": "ONE = 1.0\n" + DECOYS, "launch": MANY.format(14),
          "sum": "(x + y) * ONE"}, "a kernel does not see ONE"),
        ({"before": DECOYS, "launch": MANY.format(70)}, "launched in 66 ways"),
({"before": "import threading as t",
          "launch": "w = t.Thread(target=torch.add, args=(x, y), "
                    "kwargs={'out': out})\n    w.start()\n    w.join()"},
         "an answer starts no thread of its own"),
    ],
)  # fmt: skip
def test_what_is_launched_must_be_known(
    judge: Judge, parts: dict[str, str], says: str
) -> None:
    parts = {"before": "", "parameter": "", "sum": "x + y", "launch": PLAIN} | parts
    exercise = all_exercises()["vector_add_triton"]
    result = judge.grade(exercise, Cells({exercise.id: ADD.format(**parts)}))
    if says:
        fails(result, says)
    else:
        assert result.passed, result.message
