"""``kw.compare``: how far a result is off, in a line."""

from __future__ import annotations

import pytest
import torch

import kernelwright as kw


@pytest.mark.parametrize(
    ("got", "wanted", "says"),
    [
        ([1.0, 2.5], [1.0, 2.0], "off by 5.0e-01 at most, of numbers up to 2"),
        ([], [], "off by 0.0e+00 at most, of numbers up to 0"),
        ([1.0, torch.nan], [1.0, 2.0], "off by nan at most, of numbers up to 2"),
        ([torch.inf], [torch.inf], "off by 0.0e+00 at most, of numbers up to inf"),
        ([3, 4], [3, 4], "all 2 are equal"),
        ([3, 5], [3, 4], "1 of 2 differ, the first at (1,): 5, wanted 4"),
    ],
)
def test_what_it_says(
    got: list[float],
    wanted: list[float],
    says: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    kw.compare(torch.tensor(got), torch.tensor(wanted))
    assert capsys.readouterr().out == f"{says}\n"


def test_dtypes_may_differ_and_a_gradient_may_hang_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    x = torch.ones(2, 2).half().requires_grad_()
    kw.compare(x * 2, torch.full((2, 2), 2, dtype=torch.float64), "twice")
    assert capsys.readouterr().out.startswith("twice: off by 0.0e+00")


def test_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match=r"got \(2,\), wanted \(3,\)"):
        kw.compare(torch.ones(2), torch.ones(3))
