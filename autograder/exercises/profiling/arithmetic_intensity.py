"""Arithmetic intensity: operations for each byte that is moved."""

from __future__ import annotations

import torch

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
    Exercise,
    Output,
    Outputs,
    Problem,
    Tolerance,
)
from autograder.exercises.profiling.shared import prelude


def work_case(name: str, flops: int, read: int, written: int, size: int) -> Case:
    """Return a case by operations, elements moved, and bytes of an element."""
    sizes = {"flops": flops, "read": read, "written": written, "element_bytes": size}
    return Case(name, sizes)


def matmul_work(n: int, element_bytes: int) -> Case:
    """Return the work of an n x n matrix product."""
    words = {2: "fp16", 4: "fp32", 8: "fp64"}[element_bytes]
    return work_case(f"matmul {n}, {words}", 2 * n**3, 2 * n * n, n * n, element_bytes)


def _problem(case: Case, generator: torch.Generator) -> Problem:
    work = torch.tensor(list(case.sizes.values()), dtype=torch.int64)
    return Problem({"work": work}, {"intensity": Output((), torch.float64)})


def _reference(arguments: Arguments) -> Outputs:
    flops, read, written, element_bytes = tensor(arguments, "work").tolist()
    value = flops / ((read + written) * element_bytes)
    return {"intensity": torch.tensor(value, dtype=torch.float64)}


ARITHMETIC_INTENSITY = Exercise(
    id="arithmetic_intensity",
    title="Arithmetic intensity",
    kind="warm-up",
    points=5,
    language="python",
    entry="function",
    name="arithmetic_intensity",
    source="solutions/profiling/intensity.py",
    goal="Return a kernel's floating-point operations for each byte that it moves.",
    requirements=(
        "`read` and `written` count elements; an element has `element_bytes` bytes.",
        "The result is a number, in FLOP/byte.",
    ),
    problem=_problem,
    reference=_reference,
    cases=(
        work_case("vector add, 2^26 elements, fp32", 2**26, 2**27, 2**26, 4),
        matmul_work(4096, 4),
        matmul_work(4096, 2),
        work_case("vector add, 1,001 elements, fp16", 1001, 2002, 1001, 2),
        work_case("sum of 999,983 elements, fp32", 999_982, 999_983, 1, 4),
        work_case("a copy: no operation at all", 0, 999_983, 999_983, 4),
    ),
    tolerance=Tolerance(factor=2.0),
    hints=(
        "Two numbers are needed: how many operations, which is given, and how many "
        "bytes pass between the kernel and memory.",
        "Every element that is read or written is moved: `read + written` of them, "
        "each of `element_bytes` bytes.",
        "`return flops / ((read + written) * element_bytes)`",
    ),
    onward="At which size does an fp32 matmul become bound by arithmetic on an H200?",
    prelude=prelude("adapt_number"),
)
