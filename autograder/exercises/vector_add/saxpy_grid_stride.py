"""saxpy with a grid-stride loop: a launch that does not follow the data.

Two roundings at most: ``a * x + y`` errs by at most eps/2 * (|a * x| + |result|),
whether or not the compiler fuses it, so a factor of 1 on |a * x| + |y| is an exact
bound.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from autograder.drawing import draw_pair, rounded, tensor
from autograder.exercise import (
    Arguments,
    Case,
    Exercise,
    Launch,
    Output,
    Outputs,
    Problem,
    Tolerance,
)
from autograder.exercises.vector_add.shared import (
    CASES,
    THREADS,
    timed,
)
from autograder.ideals import moves


def launched_case(n: int, blocks: int, threads: int) -> Case:
    """Return a case of one length and a launch of its own."""
    many = f"{blocks} block{'s' if blocks > 1 else ''} of {threads} threads"
    sizes = {"n": n, "blocks": blocks, "threads": threads}
    return Case(f"n = {n:,}, {many}", sizes)


def fixed_launch(case: Case) -> Launch:
    """Return a launch that does not follow n: most threads take several elements."""
    if case.sizes["n"] > 2**20:
        return Launch((8192,), (THREADS,))
    blocks, threads = case.sizes.get("blocks", 3), case.sizes.get("threads", 32)
    return Launch((blocks,), (threads,))


# Fewer blocks, of fewer threads: whoever wrote 96, 32 or 3 down leaves elements out.
LAUNCHED = (*CASES, launched_case(1000, 2, 16))

# Counted where n is whole rounds of sectors: then it is the same from either end.
WHOLE = next(i for i, case in enumerate(LAUNCHED) if case.sizes["n"] == 1024)
GRID_STRIDE = tuple(
    replace(
        count,
        advice="Let neighbouring threads take neighbouring elements, and each go on "
        "by the number of all threads.",
    )
    if (count.metric, count.op) == ("moved", "load")
    else count
    for count in moves()
)


def _problem(case: Case, generator: torch.Generator) -> Problem:
    x, y = draw_pair(case, generator)
    # Between 1/2 and 3/4, the tolerance holds for a * y + x too: a mistake must
    # be known by the same bound.
    a = 0.52 + 0.2 * float(torch.rand((), generator=generator))
    n = x.numel()
    return Problem(
        {"a": a, "x": x, "y": y, "out": None, "n": n},
        {"out": Output((n,), torch.float32)},
        fixed_launch(case),
    )


def _terms(arguments: Arguments) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = tensor(arguments, "x").double(), tensor(arguments, "y").double()
    return rounded(arguments, "a") * x, y


def _reference(arguments: Arguments) -> Outputs:
    product, y = _terms(arguments)
    return {"out": product + y}


def _scale(arguments: Arguments) -> Outputs:
    product, y = _terms(arguments)
    return {"out": product.abs() + y.abs()}


SAXPY = Exercise(
    id="saxpy_grid_stride",
    title="saxpy with a grid-stride loop",
    kind="core",
    points=15,
    language="cuda",
    entry="kernel",
    name="saxpy",
    source="solutions/vector_add/grid_stride.cu",
    goal="Compute `out[i] = a * x[i] + y[i]` for any `n`, with any number of threads.",
    requirements=(
        "The launch does not depend on `n`: 3 blocks of 32 threads must do for 1,009 "
        "elements, and for 1. Any other launch must do, too.",
        "At every moment neighbouring threads work on neighbouring elements.",
        "Each element is computed once.",
    ),
    problem=_problem,
    reference=_reference,
    cases=LAUNCHED,
    tolerance=Tolerance(factor=1.0, scale=_scale),
    hints=(
        "How many threads are there in the whole grid? That is how far a thread "
        "jumps to its next element.",
        "`gridDim.x` is the number of blocks and `blockDim.x` the threads in each, "
        "so the stride is their product. Start where vector_add did.",
        "`int stride = gridDim.x * blockDim.x;` then `for (int i = blockIdx.x * "
        "blockDim.x + threadIdx.x; i < n; i += stride) { ... }`",
    ),
    onward="Launch it with one block of one thread. It is right: how slow is it?",
    counts=GRID_STRIDE,
    counted=WHOLE,
    speed=timed({"bronze": 0.40, "silver": 0.65, "gold": 0.85}),
)
