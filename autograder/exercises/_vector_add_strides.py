"""Chapter 1's kernels whose launch does not follow the data: saxpy, the detective.

Two roundings at most: ``a * x + y`` errs by at most eps/2 * (|a * x| + |result|),
whether or not the compiler fuses it, so a factor of 1 on |a * x| + |y| is an exact
bound.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from autograder.drawing import (
    draw_pair,
    draw_vector,
    index,
    only,
    rounded,
    tensor,
    vector_case,
)
from autograder.exercise import (
    Arguments,
    Case,
    Count,
    Exercise,
    Launch,
    NearMiss,
    Output,
    Outputs,
    Problem,
    Tolerance,
)
from autograder.exercises._vector_add import (
    CASES,
    COALESCED,
    STEM,
    THREADS,
    WRONG_OPERANDS,
    hidden_lengths,
    timed,
    total,
)


def fixed_launch(n: int) -> Launch:
    """Return a launch that does not follow n: most threads take several elements."""
    return Launch((8192,), (THREADS,)) if n > 2**20 else Launch((3,), (32,))


def _threads_of(n: int) -> int:
    launch = fixed_launch(n)
    return launch.grid[0] * launch.block[0]


def _saxpy_problem(case: Case, generator: torch.Generator) -> Problem:
    x, y = draw_pair(case, generator)
    # Between 1/2 and 3/4, the tolerance holds for a * y + x too: a near miss must
    # be known by the same bound.
    a = 0.52 + 0.2 * float(torch.rand((), generator=generator))
    n = x.numel()
    return Problem(
        {"a": a, "x": x, "y": y, "out": None, "n": n},
        {"out": Output((n,), torch.float32)},
        fixed_launch(n),
    )


def _saxpy_terms(arguments: Arguments) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = tensor(arguments, "x").double(), tensor(arguments, "y").double()
    return rounded(arguments, "a") * x, y


def _saxpy_reference(arguments: Arguments) -> Outputs:
    product, y = _saxpy_terms(arguments)
    return {"out": product + y}


def _saxpy_scale(arguments: Arguments) -> Outputs:
    product, y = _saxpy_terms(arguments)
    return {"out": product.abs() + y.abs()}


def _saxpy_written(
    written: Callable[[torch.Tensor, int], torch.Tensor],
) -> Callable[[Arguments], Outputs]:
    """Return the mistake that writes only where ``written(index, n)`` says."""

    def output(arguments: Arguments) -> Outputs:
        result = _saxpy_reference(arguments)["out"].float()
        return only(result, written(index(result), result.numel()))

    return output


def _saxpy_swapped(arguments: Arguments) -> Outputs:
    a = rounded(arguments, "a")
    x, y = tensor(arguments, "x").double(), tensor(arguments, "y").double()
    return {"out": a * y + x}


def _saxpy_unscaled(arguments: Arguments) -> Outputs:
    return {"out": total(arguments)}


def _saxpy_both_scaled(arguments: Arguments) -> Outputs:
    x, y = tensor(arguments, "x").double(), tensor(arguments, "y").double()
    return {"out": rounded(arguments, "a") * (x + y)}


SAXPY = Exercise(
    id="saxpy_grid_stride",
    stem=STEM,
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
        "elements, and for 1.",
        "At every moment neighbouring threads work on neighbouring elements.",
        "Each element is computed once.",
    ),
    problem=_saxpy_problem,
    reference=_saxpy_reference,
    cases=CASES,
    # Fewer than the 96 threads, whole rounds of them, and a few more or less.
    hidden=hidden_lengths(96, below=96, rounds=(2, 20), rest=32),
    tolerance=Tolerance(factor=1.0, scale=_saxpy_scale),
    near_misses=(
        NearMiss(
            "no loop",
            _saxpy_written(lambda i, n: i < _threads_of(n)),
            "Each thread takes one element and stops, so everything past the "
            "number of threads is missing. Loop: step by gridDim.x * blockDim.x "
            "while i < n.",
        ),
        NearMiss(
            "start without the block",
            _saxpy_written(lambda i, n: i % _threads_of(n) < fixed_launch(n).block[0]),
            "Every block starts at the same elements, so those of the other blocks "
            "are missing: begin at blockIdx.x * blockDim.x + threadIdx.x.",
        ),
        NearMiss(
            "last round dropped",
            _saxpy_written(lambda i, n: i < n // _threads_of(n) * _threads_of(n)),
            "The last, incomplete round is missing: go on while i < n, so that "
            "some threads make one round more than others.",
        ),
        NearMiss(
            "a on y",
            _saxpy_swapped,
            "out is a * y + x: a scales x, not y.",
        ),
        NearMiss("a forgotten", _saxpy_unscaled, "out is x + y: a is not used."),
        NearMiss(
            "a on both",
            _saxpy_both_scaled,
            "out is a * (x + y): only x is scaled.",
        ),
        *WRONG_OPERANDS[1:],
    ),
    hints=(
        "How many threads are there in the whole grid? That is how far a thread "
        "jumps to its next element.",
        "`gridDim.x` is the number of blocks and `blockDim.x` the threads in each, "
        "so the stride is their product. Start where vector_add did.",
        "`int stride = gridDim.x * blockDim.x;` then `for (int i = blockIdx.x * "
        "blockDim.x + threadIdx.x; i < n; i += stride) { ... }`",
    ),
    onward="Launch it with one block of one thread. It is right: how slow is it?",
    counts=COALESCED,
    speed=timed({"bronze": 0.40, "silver": 0.65, "gold": 0.85}),
)


# --- scale_offset (detective) -----------------------------------------------------


def _scale_problem(case: Case, generator: torch.Generator) -> Problem:
    n = case.sizes["n"]
    x = draw_vector(case, generator)
    # As for saxpy: in these ranges the bound holds for the near misses as well.
    scale = 0.6 + 0.3 * float(torch.rand((), generator=generator))
    offset = -0.5 - 0.08 * float(torch.rand((), generator=generator))
    return Problem(
        {"x": x, "scale": scale, "offset": offset, "out": None, "n": n},
        {"out": Output((n,), torch.float32)},
        fixed_launch(n),
    )


def _scale_reference(arguments: Arguments) -> Outputs:
    x = tensor(arguments, "x").double()
    return {"out": rounded(arguments, "scale") * x + rounded(arguments, "offset")}


def _scale_magnitude(arguments: Arguments) -> Outputs:
    x = tensor(arguments, "x").double()
    product = (rounded(arguments, "scale") * x).abs()
    return {"out": product + abs(rounded(arguments, "offset"))}


def _scale_written(
    written: Callable[[torch.Tensor, int], torch.Tensor],
) -> Callable[[Arguments], Outputs]:
    def output(arguments: Arguments) -> Outputs:
        result = _scale_reference(arguments)["out"].float()
        return only(result, written(index(result), result.numel()))

    return output


def _scale_swapped(arguments: Arguments) -> Outputs:
    scale, offset = rounded(arguments, "scale"), rounded(arguments, "offset")
    return {"out": offset * tensor(arguments, "x").double() + scale}


def _offset_first(arguments: Arguments) -> Outputs:
    scale, offset = rounded(arguments, "scale"), rounded(arguments, "offset")
    return {"out": scale * (tensor(arguments, "x").double() + offset)}


SCALE_OFFSET = Exercise(
    id="scale_offset",
    stem=STEM,
    title="The kernel that passed every test",
    kind="detective",
    points=15,
    language="cuda",
    entry="kernel",
    name="scale_offset",
    source="autograder/answers/vector_add/scale_offset.cu",
    goal="Mend `out[i] = scale * x[i] + offset`, which is right for 96 and 960 "
    "elements and wrong for 1,000.",
    requirements=(
        "Right for every `n`, with any number of threads, fewer elements than "
        "threads included.",
        "At every moment neighbouring threads work on neighbouring elements.",
        "No thread writes past the last element.",
    ),
    problem=_scale_problem,
    reference=_scale_reference,
    cases=(*CASES, vector_case(96), vector_case(960)),
    # Fewer than the 96 threads, whole rounds of them, and a few more or less.
    hidden=hidden_lengths(96, below=96, rounds=(2, 20), rest=32),
    tolerance=Tolerance(factor=1.0, scale=_scale_magnitude),
    near_misses=(
        NearMiss(
            "remainder lost",
            _scale_written(lambda i, n: i < n // _threads_of(n) * _threads_of(n)),
            "Every element that is written is right, and the last ones are not "
            "written at all. Which thread owns element n - 1? What does n / threads "
            "do with a remainder?",
        ),
        NearMiss(
            "last element lost",
            _scale_written(lambda i, n: i < n - 1),
            "Only the last element is missing: the clamp stops one too early.",
        ),
        NearMiss(
            "one element a thread",
            _scale_written(lambda i, n: i < _threads_of(n)),
            "Each thread takes one element and stops: there are fewer threads than "
            "elements, so each needs a loop.",
        ),
        NearMiss(
            "scale and offset swapped",
            _scale_swapped,
            "out is offset * x + scale: the two numbers have changed places.",
        ),
        NearMiss(
            "offset scaled too",
            _offset_first,
            "out is scale * (x + offset): the offset is added after scaling.",
        ),
    ),
    hints=(
        "The sizes that pass are multiples of 96, the number of threads. Draw the "
        "launch for `n` = 100 and look for elements without an owner.",
        "Integer division rounds down: with `n` = 100 and 96 threads each chunk is "
        "1 element, so 96 are covered. What covers the other 4?",
        "Rounding the chunk up and stopping every thread at `n` mends the values. "
        "Drop the chunks: the grid-stride loop from saxpy gives every element one "
        "owner, and a warp's 32 loads stand side by side.",
    ),
    onward="Trace it with chunks that are rounded up: why does a warp mind? Chapter 2.",
    counts=(
        Count("sectors_per_request", "global", "load", at_most=8.0, ideal=4.0),
        Count("sectors_per_request", "global", "store", at_most=8.0, ideal=4.0),
    ),
)
