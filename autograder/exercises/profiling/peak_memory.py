"""Memory at the worst moment, of calls that allocate by a script."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from autograder.drawing import drawn, tensor
from autograder.exercise import (
    Arguments,
    Case,
    Exercise,
    Output,
    Outputs,
    Problem,
    Tolerance,
    Value,
)
from autograder.exercises.profiling.shared import prelude, whole


def memory_case(allocations: int, leak: int = 0) -> Case:
    """Return a case by how many allocations the call makes."""
    name = f"{allocations} allocations" + (", a leak" if leak else "")
    return Case(name, {"allocations": allocations, "leak": leak})


def _problem(case: Case, generator: torch.Generator) -> Problem:
    count = case.sizes["allocations"]
    sizes = torch.randint(1, 2**26, (count,), generator=generator)
    # Lifetimes that differ from one another, so that no two cases look alike.
    lives = torch.randperm(2 * count, generator=generator)[:count]
    arguments: dict[str, Value | None] = {
        "sizes": sizes,
        "lives": lives,
        "before": drawn(generator, 2**20, 2**28),
        "history": drawn(generator, 2**33, 2**34),
        "workspace": drawn(generator, 2**24, 2**25),
        "leak": case.sizes["leak"] * drawn(generator, 2**18, 2**22),
    }
    shapes = {name: Output((), torch.int64) for name in ("peak", "kept")}
    return Problem(arguments, shapes)


def _reference(arguments: Arguments) -> Outputs:
    sizes, lives = (tensor(arguments, n).tolist() for n in ("sizes", "lives"))
    rounded = [-(-size // 512) * 512 for size in sizes]
    leak = -(-whole(arguments, "leak") // 512) * 512
    most = 0
    for now in range(len(sizes)):
        # Allocation i is in use from step i until lives[i] steps after it.
        living = sum(
            size
            for i, (size, life) in enumerate(zip(rounded, lives, strict=True))
            if i == now or i < now < i + 1 + life
        )
        most = max(most, living)
    found: Mapping[str, int] = {"peak": most + leak, "kept": leak}
    return {name: torch.tensor(value) for name, value in found.items()}


PEAK_MEMORY = Exercise(
    id="peak_memory",
    title="Memory at the worst moment",
    kind="core",
    points=10,
    language="python",
    entry="function",
    name="peak_memory",
    source="solutions/profiling/memory.py",
    goal="Return what `fn()` needs beyond what was in use, and what it leaves in use.",
    requirements=(
        "`fn()` is called once before, unmeasured, and once to measure.",
        "`gpu.memory_allocated()` is what is in use; `gpu.max_memory_allocated()` the "
        "most since `gpu.reset_peak_memory_stats()`.",
        "`peak` and `kept` are relative to what was in use just before the measured "
        "call.",
        "`kept` is read when nothing holds the call's result any more.",
    ),
    problem=_problem,
    reference=_reference,
    cases=(
        memory_case(6),
        memory_case(6, leak=1),
        memory_case(1),
        memory_case(20),
        memory_case(33, leak=1),
    ),
    tolerance=Tolerance(factor=0.0),
    hints=(
        "The allocator counts for you. The question is when to ask, and from where "
        "to count.",
        "Order: call `fn()` once; read `memory_allocated`; reset the peak; call "
        "`fn()` and hold its result; read `max_memory_allocated`; drop the result; "
        "read `memory_allocated` again.",
        "`result = fn()`; `peak = gpu.max_memory_allocated()`; `del result`; `kept "
        "= gpu.memory_allocated()`; `return peak - before, kept - before`.",
    ),
    onward="kw.peak_memory does it for a CPU too: try it on torch.softmax.",
    prelude=prelude("adapt_memory"),
)
