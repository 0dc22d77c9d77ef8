"""The layer over chapter 14's rungs: a router's gradient, and many experts."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import kernelwright as kw
from solutions.moe.moe_layer import moe_layer
from solutions.moe.topk_gating import topk_gating

# Its kernels are compiled for the GPU where there is one.
DEVICE = "cuda" if kw.cuda.backend() == "gpu" else "cpu"


def loop(
    x: torch.Tensor,
    weights: torch.Tensor,
    experts: torch.Tensor,
    gate_up: torch.Tensor,
    down: torch.Tensor,
) -> torch.Tensor:
    """Compute the layer an expert at a time, whatever the dtype."""
    out = torch.zeros_like(x)
    for e in range(len(down)):
        token, slot = (experts == e).nonzero(as_tuple=True)
        gate, up = (x[token] @ gate_up[e]).chunk(2, -1)
        y = (F.silu(gate) * up) @ down[e]
        out = out.index_add(0, token, weights[token, slot, None] * y)
    return out


def trained(
    tokens: int, d: int, f: int, count: int, k: int
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return the result and each gradient, with float64's beside it."""
    torch.manual_seed(14)
    x = torch.randn(tokens, d, device=DEVICE).half()
    router = torch.randn(d, count, device=DEVICE) / d**0.5
    gate_up = (torch.randn(count, d, 2 * f, device=DEVICE) / d**0.5).half()
    down = (torch.randn(count, f, d, device=DEVICE) / f**0.5).half()
    grad = torch.randn(tokens, d, device=DEVICE).half()
    shares, experts = topk_gating(x.float() @ router, k)
    found = []
    for layer, dtype in ((moe_layer, None), (loop, torch.double)):
        inputs = [
            one.to(dtype or one.dtype).requires_grad_()
            for one in (x.detach().clone(), router.clone(), gate_up, down)
        ]
        to, by = inputs[0].to(dtype or torch.float), inputs[1]
        weights = (to @ by).gather(1, experts.long()).softmax(-1)
        torch.testing.assert_close(weights.float(), shares, rtol=1e-3, atol=1e-4)
        out = layer(inputs[0], weights, experts, *inputs[2:])
        gradients = torch.autograd.grad(out, inputs, grad.to(out.dtype))
        found.append([out.detach(), *gradients])
    return list(zip(*found, strict=True))


def hold(pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Ask for an error of a few roundings to fp16, of what is typical of each."""
    for got, wanted in pairs:
        off = (got.double() - wanted).square().mean().sqrt()
        assert off <= 2 * torch.finfo(torch.half).eps * wanted.square().mean().sqrt()


def test_gradients_reach_the_router() -> None:
    hold(trained(tokens=33, d=24, f=20, count=5, k=2))


@pytest.mark.gpu
def test_a_layer_of_many_experts() -> None:
    hold(trained(tokens=5000, d=512, f=192, count=256, k=8))
