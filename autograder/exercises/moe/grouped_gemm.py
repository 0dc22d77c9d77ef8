"""The ladder: a product of ragged experts, whose sizes only the device knows.

**Tolerance.** Products of 16-bit numbers are exact in fp32. The terms of a sum, added
in any order, are off by about sqrt(inner) roundings of half an eps of fp32, each of a
partial sum that |x| |weights| bounds; twice that is allowed. The result is rounded once
to fp16: it is one of the two numbers beside the exact one, at most an eps of it away.

    |error| <= eps16 * |out| + eps32 * sqrt(inner) * |x| |weights|
"""

from __future__ import annotations

import torch

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
    Count,
    Exercise,
    Output,
    Outputs,
    Problem,
    Speed,
    Structure,
    Tolerance,
)
from autograder.ideals import IN_16_BITS

_HALF = torch.float16
_EPS16, _EPS32 = torch.finfo(_HALF).eps, torch.finfo(torch.float32).eps
_REGIMES = {
    "spread": "spread unevenly",
    "even": "the same number for each",
    "idle": "every other expert without a row",
    "crowded": "all to one expert",
    "behind": "a third of the rows behind the last expert's",
    "nobody": "all rows behind the last expert's",
    "special": "NaN and Inf among x",
}


def ragged_case(
    experts: int, height: int, inner: int, columns: int, regime: str = "spread"
) -> Case:
    """Return a case of some sizes, named as the learner reads it."""
    name = f"{experts} experts, {height:,} rows of {inner:,} to {columns:,}"
    sizes = {
        "experts": experts, "height": height, "inner": inner, "columns": columns,
    }  # fmt: skip
    return Case(f"{name}, {_REGIMES[regime]}", sizes, regime, _HALF)


def _problem(case: Case, generator: torch.Generator) -> Problem:
    experts, height, inner, columns = case.sizes.values()
    x = torch.randn(height, inner, generator=generator)
    weights = torch.randn(experts, inner, columns, generator=generator)
    weights *= max(1, inner) ** -0.5
    shares = torch.rand(experts, generator=generator) + 0.3
    if case.regime == "even":
        shares.fill_(1.0)
    elif case.regime == "idle":
        shares[::2] = 0.0
    elif case.regime == "crowded":
        shares[torch.arange(experts) != experts // 2] = 0.0
    some = {"behind": height * 2 // 3, "nobody": 0}.get(case.regime, height)
    sums = shares.cumsum(0)
    offsets = (sums / sums[-1] * some).round().int()
    x[torch.arange(height) >= some] = torch.nan  # nobody's rows: not to be multiplied
    if case.regime == "special":
        for start, value in enumerate((torch.nan, torch.inf, -torch.inf)):
            x.view(-1)[start * 7 :: 1031] = value
    return Problem(
        {"x": x.to(_HALF), "weights": weights.to(_HALF), "offsets": offsets},
        {"out": Output((height, columns), _HALF)},
    )


def _by_a_loop(
    x: torch.Tensor, weights: torch.Tensor, offsets: torch.Tensor
) -> torch.Tensor:
    out = x.new_zeros(x.shape[0], weights.shape[2], dtype=torch.float64)
    begin = 0
    for expert, end in enumerate(offsets.tolist()):
        out[begin:end] = x[begin:end].double() @ weights[expert].double()
        begin = end
    return out


def _three(arguments: Arguments) -> list[torch.Tensor]:
    return [tensor(arguments, name) for name in ("x", "weights", "offsets")]


def _reference(arguments: Arguments) -> Outputs:
    return {"out": _by_a_loop(*_three(arguments))}


def _tolerated(arguments: Arguments) -> Outputs:
    x, weights, offsets = _three(arguments)
    numbers, matrices = (t.abs().nan_to_num(0.0, 0.0, 0.0) for t in (x, weights))
    sums = _by_a_loop(numbers, matrices, offsets)
    out = _by_a_loop(x, weights, offsets).abs_().nan_to_num_(0.0, 0.0, 0.0)
    return {"out": out.add_(sums, alpha=_EPS32 / _EPS16 * x.shape[1] ** 0.5)}


def _peer(arguments: Arguments) -> object:
    # Its fast kernels take bf16 alone: the same bits, read as such, take as long.
    x, weights, offsets = _three(arguments)
    bits, matrices = (t.view(torch.bfloat16) for t in (x, weights))
    return torch._grouped_mm(bits, matrices, offs=offsets)


def _flops(case: Case) -> int:
    return 2 * case.sizes["height"] * case.sizes["inner"] * case.sizes["columns"]


def _bytes(case: Case) -> int:
    experts, height, inner, columns = case.sizes.values()
    return 2 * (height * (inner + columns) + experts * inner * columns) + 4 * experts


GROUPED_GEMM = Exercise(
    id="grouped_gemm",
    title="Ragged experts in one launch",
    kind="ladder",
    points=25,
    language="python",
    entry="function",
    name="grouped_gemm",
    source="solutions/moe/ragged_gemm.py",
    goal="Multiply each expert's rows by its own matrix in one Triton launch, as fast "
    "as you can.",
    requirements=(
        "x is (height, inner), weights (experts, inner, columns), out (height, "
        "columns), contiguous, fp16; products of fp16, sums in fp32. Any sizes, at "
        "least one expert.",
        "`offsets`, int32, says where each expert's rows *end*: expert e has rows "
        "offsets[e - 1] to offsets[e], the first one from 0. It may have none. Rows "
        "from the last offset on are nobody's: zeros in out, whatever x holds there.",
        "The host does not read `offsets`, so that it waits for nothing.",
        "A tile meets its own expert's matrix and no other; each element of out is "
        "stored once. Tiles, warps, stages and the programs' order are yours.",
    ),
    problem=_problem,
    reference=_reference,
    cases=(
        ragged_case(5, 300, 70, 130),
        ragged_case(4, 256, 64, 64),
        ragged_case(12, 720, 20, 24),
        ragged_case(3, 384, 32, 40, "even"),
        ragged_case(7, 290, 40, 24, "idle"),
        ragged_case(6, 150, 24, 33, "crowded"),
        ragged_case(4, 333, 33, 20, "behind"),
        ragged_case(3, 60, 20, 9, "nobody"),
        ragged_case(4, 90, 50, 40, "special"),
        ragged_case(4, 20, 70, 520),
        ragged_case(12, 8, 17, 16),
        ragged_case(1, 1, 1, 1),
        ragged_case(3, 10, 0, 5),
        ragged_case(3, 0, 16, 8),
    ),
    tolerance=Tolerance(factor=1.0, scale=_tolerated),
    hints=(
        "The product itself is one that you know: M x N of out, a walk along inner by "
        "K. New is what a program must know first: whose rows are its own, where they "
        "begin, and where that expert's end. What does it have to go by?",
        "Let tile = tl.program_id(0) // tl.cdiv(columns, N), and begin with expert 0, "
        "rows 0 to offsets[0]. While tile >= tl.cdiv(end - begin, M), take those tiles "
        "away and go on to the next expert. The rows behind the last one's are tiles "
        "too, of an expert without a matrix: its rows end at height.",
        "Rows are begin + tile * M + tl.arange(0, M), and only those below end are "
        "stored; with none below end the program has nothing to do. The matrix begins "
        "at w_ptr + expert * inner * columns, in int64. Zeros for nobody's rows: walk "
        "along 0 numbers, tl.where(expert < experts, inner, 0). Launch "
        "(triton.cdiv(height, M) + experts) * triton.cdiv(columns, N) programs.",
    ),
    onward="64 steps to find a tile: tl.load all offsets at once, and let tl.cumsum "
    "and a comparison find it. How much of a tile's time was that?",
    counts=(
        Count("bytes", "global", "load", times=4),
        Count("bytes", "global", "store"),
        Count("writers", "global", "store", ideal=1, times=1),
        IN_16_BITS,
    ),
    counted=2,
    structure=(
        Structure(
            holds=("triton.jit", "tl.load", "tl.store", "tl.dot"),
            runs_no=("aten.mm", "aten.addmm", "matmul", "bmm", "grouped_mm", "einsum"),
            message="The values are right, and it is not your Triton kernel alone that "
            "made them: the products belong into it.",
        ),
        Structure(
            runs_no=("tolist", "numpy", "cpu", "_local_scalar", "unbind"),
            message="The values are right, but the host reads offsets: there it waits "
            "until the GPU has come so far. Let each program find its own tile.",
        ),
    ),
    repeats=("offsets",),
    speed=Speed(
        peer="torch: torch._grouped_mm, bf16",
        run_peer=_peer,
        case=ragged_case(64, 65536, 2048, 2048),
        bytes_moved=_bytes,
        flops=_flops,
        unit="half",
        bands={"bronze": 0.4, "silver": 0.6, "gold": 0.8},
    ),
    prelude="import torch\nimport kernelwright as kw\n"
    "import triton\nimport triton.language as tl\n",
    shares={"correct": 0.4, "counts": 0.2, "speed": 0.4},
)
