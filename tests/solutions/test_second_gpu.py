"""Tensors on another GPU than torch's current one: kernels must run where these lie."""

from __future__ import annotations

import pytest
import torch

from solutions.flash_attention import flash_attention
from solutions.flash_attention_triton import decode_attention
from solutions.softmax import softmax

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs a second GPU"),
]


def test_softmax() -> None:
    for length in (100, 40_000):
        x = torch.randn(5, length, device="cuda:1", requires_grad=True)
        y = softmax(x, 1)
        torch.testing.assert_close(y, torch.softmax(x, 1))
        y.square().sum().backward()
        assert x.grad is not None and x.grad.device == x.device


@pytest.mark.parametrize("head_dim", [32, 64, 128])
def test_attention(head_dim: int) -> None:
    q, k, v = torch.randn(3, 1, 2, 200, head_dim, device="cuda:1").bfloat16()
    leaves = [t.requires_grad_() for t in (q, k, v)]
    out = flash_attention(*leaves, causal=True)
    right = torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=True)
    torch.testing.assert_close(out, right, atol=2e-2, rtol=2e-2)
    out.sum().backward()
    assert q.grad is not None and q.grad.device == q.device


def test_decoding() -> None:
    q = torch.randn(2, 4, 64, device="cuda:1").half()
    k, v = torch.randn(2, 2, 2, 300, 64, device="cuda:1").half()
    out = decode_attention(q, k, v)
    right = torch.nn.functional.scaled_dot_product_attention(
        q.unsqueeze(2), k, v, enable_gqa=True
    )
    torch.testing.assert_close(out, right.squeeze(2), atol=5e-3, rtol=5e-3)
