"""solutions.new_stem: right in value and shape; wrong input refused."""

from __future__ import annotations

import pytest
import torch

from solutions.new_stem import new_stem

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.mark.parametrize("device", DEVICES)
def test_every_length(device: str) -> None:
    for n in (0, 1, 31, 33, 255, 257, 1009):
        x = torch.randn(n, device=device)
        assert torch.equal(new_stem(x), x * x)


def test_wrong_input_is_refused() -> None:
    with pytest.raises(ValueError, match="wanted contiguous float32"):
        new_stem(torch.zeros(4).double())
    with pytest.raises(ValueError, match="wanted contiguous float32"):
        new_stem(torch.zeros(4, 4).t())
