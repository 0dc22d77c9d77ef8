"""What the exercises of chapter 7 share: matrices, launches, the tolerance.

Products of 16-bit numbers are exact in fp32, so all rounding is in the sums: k terms
in any order differ from the exact sum by about sqrt(k) roundings of half an eps, each
of a partial sum that |a| |b| bounds. The tolerance allows eps * sqrt(k) * |a| |b|:
twice that. Sums kept in fp16 are a thousand times further off.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
    Count,
    Launch,
    Output,
    Outputs,
    Problem,
    Speed,
    Structure,
    Tolerance,
)
from autograder.ideals import barriers, moves, needed

_REGIMES = {
    "distinct": "normal values",
    "large": "sums past fp16's range",
    "special": "NaN and Inf among them",
}

# Values are half of it: from the second exercise on, a kernel that gives the right sums
# in another way is not what is learned here.
SHARES = {"correct": 0.4, "counts": 0.4, "speed": 0.2}


def product_case(m: int, n: int, k: int, regime: str = "distinct") -> Case:
    """Return a case of one shape, named as the learner reads it."""
    name = f"({m:,} x {k:,}) ({k:,} x {n:,}), {_REGIMES[regime]}"
    return Case(name, {"m": m, "n": n, "k": k}, regime, torch.float16)


# Of 128 x 128 tiles, a block each.
SMALL_CASES = (
    product_case(128, 256, 192),
    product_case(256, 128, 64),
    product_case(128, 128, 0),
    product_case(128, 128, 128, "large"),
    product_case(128, 128, 64, "special"),
)


# What the two pipelines with three stages of 128 x 64 and 64 x 128 halves share.
STAGED_BYTES = 3 * 2 * 128 * 64 * 2
STAGED_CASES = (
    product_case(128, 256, 320),
    product_case(256, 128, 64),
    product_case(128, 128, 128),
    product_case(128, 128, 0),
    product_case(128, 128, 192, "large"),
    product_case(128, 128, 256, "special"),
)


def draw_matrix(
    rows: int, columns: int, regime: str, generator: torch.Generator
) -> torch.Tensor:
    """Draw halves that differ from place to place, some of them NaN and Inf."""
    x = torch.randn(rows, columns, generator=generator)
    if regime == "large":
        x = 60 + 20 * x  # a sum of 64 products is past 65,504, fp16's largest
    elif regime == "special":
        flat = x.view(-1)
        for start, value in enumerate((torch.nan, torch.inf, -torch.inf)):
            flat[start * 7 :: 1031] = value
    return x.half()


def problem_with(
    block: tuple[int, int],
    threads: int,
    shared: int = 0,
    *,
    line: bool = False,
) -> Callable[[Case, torch.Generator], Problem]:
    """Return the function that draws two matrices and launches such blocks.

    Args:
        block: rows and columns of C a block.
        threads: of a block.
        shared: bytes of dynamic shared memory.
        line: whether the blocks are numbered in one line.
    """

    def problem(case: Case, generator: torch.Generator) -> Problem:
        m, n, k = (case.sizes[side] for side in ("m", "n", "k"))
        down, across = m // block[0], n // block[1]
        grid = (down * across,) if line else (across, down)
        return Problem(
            {
                "a": draw_matrix(m, k, case.regime, generator),
                "b": draw_matrix(k, n, case.regime, generator),
                "c": None,
                "m": m,
                "n": n,
                "k": k,
            },
            {"c": Output((m, n), torch.float32)},
            Launch(grid, (threads,), shared),
        )

    return problem


def matrices(arguments: Arguments) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a and b in float64."""
    return tensor(arguments, "a").double(), tensor(arguments, "b").double()


def reference(arguments: Arguments) -> Outputs:
    """Return the product."""
    a, b = matrices(arguments)
    return {"c": a @ b}


def _magnitudes(arguments: Arguments) -> Outputs:
    # A sum that is finite has no NaN or Inf among its terms: here they may count as 0,
    # so that what a mistake leaves out of an infinite sum can be recognized too.
    a, b = (x.abs().nan_to_num(0.0, 0.0) for x in matrices(arguments))
    return {"c": a @ b}


TOLERANCE = Tolerance(
    factor=1.0, length=lambda case: case.sizes["k"], scale=_magnitudes
)


def structure(*holds: str, message: str) -> tuple[Structure, ...]:
    """Return the demand for instructions, on a chip that has them all."""
    return (Structure(holds=holds, message=message, arch="sm_80"),)


def timed(bands: dict[str, float]) -> Speed:
    """Return the speed gate of a product of 8192^3 in fp16, against cuBLAS.

    Bands are by what a rung can reach. In this gate, on an H200, the references reach
    0.36 of it (WMMA), 0.42 (mma.sync), 0.52 (stages) and 0.61 (the last).
    """
    return Speed(
        peer="cuBLAS, fp16",
        run_peer=lambda arguments: torch.matmul(
            tensor(arguments, "a"), tensor(arguments, "b")
        ),
        case=product_case(8192, 8192, 8192),
        bytes_moved=lambda case: 2 * case.sizes["m"] * case.sizes["k"]
        + 2 * case.sizes["k"] * case.sizes["n"]
        + 4 * case.sizes["m"] * case.sizes["n"],
        flops=lambda case: 2 * case.sizes["m"] * case.sizes["n"] * case.sizes["k"],
        unit="half",
        bands=bands,
    )


STAGED_COUNTS = (
    *moves({"a": 2}),
    Count("wavefronts", "shared", "load", ideal=5120),
    # Five tiles of k.
    barriers(5, 5.5),
    # 8 x 16 parts of c, 20 steps.
    needed("matrix products", 2560),
    # Behind the five tiles that are multiplied 2, 2, 2, 1 and 0 are on their way.
    Count(
        "bytes under way at a product",
        ideal=7 / 5 * STAGED_BYTES / 3,
        times=None,
        at_least=STAGED_BYTES / 3,
        advice="While tile t is multiplied, tiles t + 1 and t + 2 are to be on their "
        "way: let the wait leave the newest group open, and send for the next tile "
        "before you multiply.",
    ),
)
ASYNCHRONOUS = structure(
    "LDGSTS",
    "LDSM",
    "HMMA",
    message="The values are right, and the machine code lacks LDGSTS, LDSM or HMMA: "
    "the tiles do not travel past the registers. Bring them with "
    "kw::copy_tile_async, as `fetch` does.",
)
