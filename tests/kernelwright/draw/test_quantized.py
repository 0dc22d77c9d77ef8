"""Errors of rounding, by group: what is said is what the matrices differ by."""

from __future__ import annotations

import re

import pytest
import torch

from kernelwright.draw import explore_groups
from kernelwright.errors import ArgumentError
from solutions.int4 import dequantize, quantize


def rounded(weight: torch.Tensor, size: int) -> torch.Tensor:
    return dequantize(quantize(weight, size))


def weights(outlier: float = 1.0) -> torch.Tensor:
    weight = torch.randn(64, 1024, generator=torch.Generator().manual_seed(3))
    weight[:, 300] *= outlier
    return weight


def test_it_says_the_error_in_typical_weights() -> None:
    weight = weights()
    words = explore_groups({"normal": weight}, rounded).picture("normal", 128).words
    error = (rounded(weight, 128) - weight).double().square().mean().sqrt()
    share = float(error / weight.double().abs().median())
    assert words == f"error {share:.1%} of a typical weight; 4.125 bits a weight"


def test_an_outlier_is_seen_where_it_sits() -> None:
    explorer = explore_groups({"outlier": weights(40.0)}, rounded, (64, 1024))
    path = re.compile(r'd="((?:M[^z]+z)+)"')

    def heights(size: int) -> list[float]:
        svg = explorer.picture("outlier", size).drawn.frames[0].svg
        along = path.findall(svg)[1]
        return [float(high) for high in re.findall(r"v-([\d.]+)", along)]

    narrow, wide = heights(64), heights(1024)
    assert len(narrow) == len(wide) == 64
    # A group of 64 columns is 4 of the 64 parts of a row, and 300 is in the fifth.
    assert min(narrow[16:20]) > 2 * max(narrow[:16] + narrow[20:])
    assert min(wide) > max(wide) / 2
    assert "beyond the picture" in explorer.picture("outlier", 1024).words


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ({}, "there is no layer"),
        ({"bias": torch.ones(4)}, "bias has shape"),
        ({"empty": torch.zeros(4, 4)}, "not all of it zeros"),
    ],
)
def test_what_is_no_weight_is_refused(
    layers: dict[str, torch.Tensor], words: str
) -> None:
    with pytest.raises(ArgumentError, match=words):
        explore_groups(layers, rounded)


def test_a_quantizer_that_makes_something_else_is_refused() -> None:
    explorer = explore_groups({"normal": weights()}, lambda w, size: w[:, :size])
    with pytest.raises(ArgumentError, match="finite numbers of the same shape"):
        explorer.picture("normal", 128)
