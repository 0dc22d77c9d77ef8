"""What every launcher asks of a tensor, and what it says where that is missing."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernelwright.operators import check_tensor

X = torch.ones(2)


@pytest.mark.parametrize("x", [X, X.half(), X.double()])
def test_a_tensor_of_floats_passes(x: torch.Tensor) -> None:
    check_tensor("f", "x", x)
    check_tensor("f", "x", x.int(), None)


@pytest.mark.parametrize(
    ("value", "dtypes", "error", "says"),
    [
        ([1.0], None, TypeError, "f: x is list; wanted a torch tensor: torch.as_t"),
        (X.int(), {torch.half: "__half", torch.float: "float"}, TypeError,
         "f: x is torch.int32; wanted one of float16, float32: x.float()."),
        (X.to("meta"), None, ValueError, "f: x is on meta; move it with x.cpu()."),
    ],
)  # fmt: skip
def test_what_is_not_taken_is_named_with_its_mend(
    value: Any, dtypes: Any, error: type[Exception], says: str
) -> None:
    with pytest.raises(error) as raised:
        check_tensor("f", "x", value, dtypes)
    assert str(raised.value).startswith(says)
