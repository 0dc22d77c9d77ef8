"""What the products of chapter 13 share: words, scales, x, float64, the tolerance.

A weight is (code - 8) * scale. Words are drawn as they are: all eight codes of a random
word are random. The reference takes them apart by the order that the exercise names.

**Tolerance.** A code less 8 times a number of x in fp16 is exact in fp32. What is added
in fp32, in any order, is off by about sqrt(columns) roundings of half an eps, each of a
partial sum that |x| times scale times 15 bounds, whether 8 is subtracted from each code
or 8 times the sum of x from the sum of all; a product by a scale is one rounding more.
Twice that is allowed. The result is rounded once to fp16: it is one of the two numbers
beside the exact one, at most an eps of it away. So

    |error| <= eps16 * |out| + eps32 * (sqrt(columns) + 3) * 15 * sum of |x| scale.

A weight that is rounded to fp16 with its scale, or a sum in fp16, does not keep it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from autograder.drawing import tensor
from autograder.exercise import Arguments, Case, Outputs, Tolerance

GROUP = 128
_ROWS = 512  # at a time: a timed weight is no matrix of float64
_EPS16, _EPS32 = (torch.finfo(d).eps for d in (torch.float16, torch.float32))
_REGIMES = {
    "distinct": "normal values",
    "offset": "x near 30, so that sums nearly cancel",
    "sparse": "a third of the scales 0",
    "special": "NaN among x",
}


def product_case(
    tokens: int, rows: int, columns: int, regime: str = "distinct"
) -> Case:
    """Return a case of one shape, named as the learner reads it."""
    said = "1 token" if tokens == 1 else f"{tokens} tokens"
    name = f"{said}, a weight of {rows:,} x {columns:,}, {_REGIMES[regime]}"
    sizes = {"tokens": tokens, "rows": rows, "columns": columns}
    return Case(name, sizes, regime, torch.float16)


def draw_x(case: Case, generator: torch.Generator) -> torch.Tensor:
    """Draw the tokens' numbers."""
    tokens, columns = case.sizes["tokens"], case.sizes["columns"]
    x = torch.randn(tokens, columns, generator=generator)
    if case.regime == "offset":
        x = x.mul(3.0).add(30.0)
    elif case.regime == "special":
        x.view(-1)[5::1031] = torch.nan
    return x.half()


def draw_words(case: Case, generator: torch.Generator) -> torch.Tensor:
    """Draw words of eight codes."""
    count = case.sizes["rows"] * case.sizes["columns"] // 8
    low, high = -(2**31), 2**31
    return torch.randint(low, high, (count,), dtype=torch.int32, generator=generator)


def draw_scales(
    first: int, second: int, case: Case, generator: torch.Generator
) -> torch.Tensor:
    """Draw scales that make weights of the size of 1 / sqrt(columns)."""
    size = 0.2 / max(1, case.sizes["columns"]) ** 0.5
    scales = torch.rand(first, second, generator=generator).add(0.5).mul(size)
    if case.regime == "sparse":
        scales[torch.rand(first, second, generator=generator) < 1 / 3] = 0.0
    return scales.half()


def nibbles(words: torch.Tensor) -> torch.Tensor:
    """Return the eight codes of each word, the lowest bits first."""
    shifts = torch.arange(0, 32, 4, dtype=torch.int32, device=words.device)
    return torch.bitwise_right_shift(words.unsqueeze(-1), shifts).bitwise_and(15)


def weight_bytes(case: Case) -> int:
    """Return what the words and scales of a case take."""
    weights = case.sizes["rows"] * case.sizes["columns"]
    return weights // 2 + weights // GROUP * 2


Coded = Callable[[Arguments, slice], torch.Tensor]
"""Gives the codes of some rows, (rows, columns)."""
Scaled = Callable[[Arguments], torch.Tensor]
"""Gives the scales, (rows, groups)."""


def product(codes: Coded, scales: Scaled) -> Callable[[Arguments], Outputs]:
    """Return the reference: x times the transposed weight."""

    def reference(arguments: Arguments) -> Outputs:
        x, by = tensor(arguments, "x").double(), scales(arguments).double()
        parts = [x.new_empty(*x.shape[:-1], 0)]
        for first in range(0, len(by), _ROWS):
            some = slice(first, first + _ROWS)
            groups = (codes(arguments, some) - 8).double().unflatten(1, (-1, GROUP))
            parts.append(x @ groups.mul(by[some].unsqueeze(-1)).flatten(1).mT)
        return {"out": torch.cat(parts, -1)}

    return reference


def tolerance(reference: Callable[[Arguments], Outputs], scales: Scaled) -> Tolerance:
    """Return the tolerance of a product."""

    def scale(arguments: Arguments) -> Outputs:
        x = tensor(arguments, "x").double().abs().nan_to_num(0.0)
        by_group = x.unflatten(-1, (-1, GROUP)).sum(-1)
        sums = by_group @ scales(arguments).double().mT
        rounding = _EPS32 * (x.shape[-1] ** 0.5 + 3) * 15 * sums
        out = reference(arguments)["out"].abs().nan_to_num(0.0)
        return {"out": out + rounding / _EPS16}

    return Tolerance(factor=1.0, scale=scale)
