"""The ladder: bias and GELU in the epilogue of a product as fast as cuBLAS's."""

from __future__ import annotations

import torch

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
    Count,
    Exercise,
    Output,
    Problem,
    Speed,
)
from autograder.exercises.epilogue.shared import (
    LINEAR_TOLERANCE,
    PRELUDE,
    draw_layer,
    in_triton,
    linear_case,
    linear_gelu,
)
from autograder.ideals import products


def _problem(case: Case, generator: torch.Generator) -> Problem:
    m, n, k = (case.sizes[side] for side in ("m", "n", "k"))
    x, weight, bias = draw_layer(m, k, n, case, generator)
    return Problem(
        {"x": x, "weight": weight, "bias": bias},
        {"out": Output((m, n), case.dtype)},
    )


def _peer(arguments: Arguments) -> object:
    x, weight, bias = (tensor(arguments, name) for name in ("x", "weight", "bias"))
    functional = torch.nn.functional
    return functional.gelu(functional.linear(x, weight, bias))


def _bytes(case: Case) -> int:
    m, n, k = (case.sizes[side] for side in ("m", "n", "k"))
    return 2 * (m * k + n * k + n + m * n)


LINEAR_GELU_FAST = Exercise(
    id="linear_gelu_fast",
    title="As fast as torch's two kernels",
    kind="ladder",
    points=25,
    language="python",
    entry="function",
    name="linear_gelu_fast",
    source="solutions/epilogue/linear_gelu_fast.py",
    goal="Compute `gelu(x weightᵀ + bias)` in one Triton kernel, as fast as you can.",
    requirements=(
        "x is (m, k), weight (n, k), bias (n,), contiguous, fp16; any m, n and k. "
        "(Triton's interpreter cannot multiply bf16, so nothing here asks for it.)",
        "Products of fp16; sums, bias and GELU (the one with erf) in fp32; each "
        "element is stored once.",
        "Tiles, warps, stages and the programs' order are yours to choose. `tuned` has "
        "`triton.autotune` time what `tries` returns, for large products on a GPU; "
        "for others it takes the first.",
    ),
    problem=_problem,
    reference=linear_gelu,
    cases=(
        linear_case(128, 256, 128),
        linear_case(100, 130, 70),
        linear_case(1, 1, 1),
        linear_case(70, 33, 65),
        linear_case(33, 65, 129, "offset"),
        linear_case(65, 40, 40, "cold"),
        linear_case(1100, 140, 16),
        linear_case(3, 5, 0),
        linear_case(0, 7, 20),
        linear_case(60, 40, 33, "special"),
    ),
    tolerance=LINEAR_TOLERANCE,
    hints=(
        "First the plain one: a program owns M x N of out, walks over k by K with "
        "tl.dot, then bias, GELU and the store. Then one idea at a time.",
        "Programs run in the order of their numbers, some hundred at a time. Those of "
        "one row of tiles read all of the weight; those of a band, eight tiles high, "
        "share eight tiles of x and few of the weight, which the L2 cache keeps. "
        "With across = tl.cdiv(n, N), band = program // (8 * across); how high is the "
        "last one?",
        "M = 128, N = 256, K = 64, eight warps, three or four stages is where a "
        "Hopper GPU begins to be busy. Masks in the loop only along k; rows and "
        "columns past the end may read the last one again: tl.minimum(rows, m - 1).",
    ),
    onward="In Gluon the epilogue of one tile overlaps the products of the next: how "
    "much of this kernel's time would that hide?",
    counts=(
        Count("bytes", "global", "store"),
        Count("writers", "global", "store", ideal=1, times=1),
        # Tiles may be larger than this output.
        *products(128 * 128 * 256, times=4.2),
    ),
    structure=(in_triton(),),
    speed=Speed(
        peer="torch: F.gelu(F.linear(x, weight, bias)), fp16",
        run_peer=_peer,
        case=linear_case(8192, 8192, 4096),
        bytes_moved=_bytes,
        flops=lambda case: 2 * case.sizes["m"] * case.sizes["n"] * case.sizes["k"],
        unit="half",
        bands={"bronze": 0.50, "silver": 0.70, "gold": 0.85},
    ),
    prelude=PRELUDE,
    shares={"correct": 0.4, "counts": 0.2, "speed": 0.4},
)
