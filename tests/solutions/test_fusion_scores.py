"""Attention's weights against torch: tiles, masks, gradients, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from solutions.fusion import attention_score
from solutions.fusion.scores import scores_triton

DEVICES = [pytest.param("cuda", marks=pytest.mark.gpu), "cpu"]
SHAPES = [
    ((5, 8), (7, 8)),
    ((130, 64), (129, 64)),
    ((2, 64, 24), (2, 256, 24)),
    ((2, 3, 1, 16), (2, 3, 40, 16)),
    ((0, 8), (3, 8)),
    ((3, 8), (1, 8)),
]
_One = torch.Tensor


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no NVIDIA GPU on this machine")
    torch.manual_seed(3)
    return str(request.param)


def wanted(q: _One, k: _One, scale: float, mask: _One | None) -> _One:
    scores = q.double() @ k.double().mT * scale
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, -torch.inf)
    elif mask is not None:
        scores = scores + mask
    return scores.softmax(-1)


def masks(rows: int, keys: int, device: str) -> list[_One | None]:
    seen = torch.rand(rows, keys, device=device) > 0.4
    seen[:, :1] = True
    return [None, seen, torch.randn(1, keys, device=device)]


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str
)
@pytest.mark.parametrize(("q_shape", "k_shape"), SHAPES)
def test_values(q_shape: Any, k_shape: Any, dtype: torch.dtype, device: str) -> None:
    q, k = (torch.randn(s, device=device).to(dtype) for s in (q_shape, k_shape))
    for mask in masks(q_shape[-2], k_shape[-2], device):
        for scale in (None, 0.7):
            real = q_shape[-1] ** -0.5 if scale is None else scale
            due = wanted(q, k, real, mask)
            got = attention_score(q, k, scale, mask)
            # A score s is off by some eps of itself, which moves exp(s) by as much.
            near = 2 * torch.finfo(dtype).eps
            if dtype in (torch.float32, torch.float64):
                near *= 40
            torch.testing.assert_close(got.double(), due, rtol=near, atol=near)
            assert got.dtype == dtype and got.is_contiguous()


@pytest.mark.parametrize(("q_shape", "k_shape"), SHAPES)
def test_the_kernel(q_shape: Any, k_shape: Any, device: str) -> None:
    q, k = (torch.randn(s, device=device).half() for s in (q_shape, k_shape))
    for mask in masks(q_shape[-2], k_shape[-2], device):
        got = scores_triton(q, k, mask, 0.5)
        due = wanted(q, k, 0.5, mask)
        torch.testing.assert_close(got.double(), due, rtol=2e-3, atol=2e-6)


@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_a_row_that_sees_nothing_is_nan(device: str) -> None:
    q, k = torch.randn(2, 40, 16, device=device).half()
    seen = torch.ones(40, 40, dtype=torch.bool, device=device)
    seen[3] = False
    for got in (attention_score(q, k, mask=seen), scores_triton(q, k, seen, 0.25)):
        assert got[3].isnan().all() and not got[:3].isnan().any()


def test_gradients(device: str) -> None:
    q = torch.randn(2, 4, 3, dtype=torch.float64, device=device, requires_grad=True)
    k = torch.randn(2, 5, 3, dtype=torch.float64, device=device, requires_grad=True)
    seen = torch.rand(4, 5, device=device) > 0.3
    seen[:, 0] = True
    for mask in (None, seen):
        assert torch.autograd.gradcheck(
            lambda q, k, m=mask: attention_score(q, k, mask=m), (q, k)
        )


def test_layouts(device: str) -> None:
    q = torch.randn(2, 16, 3, 8, device=device).transpose(1, 2)
    k = torch.randn(2, 3, 8, 20, device=device).mT
    for _ in range(3):
        torch.testing.assert_close(
            attention_score(q, k), ((q @ k.mT) * 8**-0.5).softmax(-1)
        )


def test_compiled(device: str) -> None:
    torch._dynamo.reset()
    q, k = (torch.randn(2, 24, 16, device=device, requires_grad=True) for _ in "qk")
    compiled = torch.compile(attention_score, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(q, k), attention_score(q, k))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda x: attention_score([1.0], x), "q is list"),
        (lambda x: attention_score(x, x.half()), r"k\.to\(q\)"),
        (lambda x: attention_score(x, x.mT), "rows of one length"),
        (lambda x: attention_score(x, x[None]), "leading dimensions"),
        (lambda x: attention_score(x, x, mask=torch.ones(3, 3)), "broadcasts to"),
        (lambda x: attention_score(x, x, mask=torch.ones(4, 4).int()), "int32"),
    ],
)
def test_what_does_not_fit_is_named(call: Callable[[_One], Any], says: str) -> None:
    with pytest.raises((TypeError, ValueError), match=says):
        call(torch.randn(4, 8))
