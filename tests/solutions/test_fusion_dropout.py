"""Dropout behind GELU: the rate, the same mask backward, other masks elsewhere."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import kernelwright as kw
from solutions.fusion import gelu, gelu_dropout

DEVICES = [pytest.param("cuda", marks=pytest.mark.gpu), "cpu"]
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no NVIDIA GPU on this machine")
    torch.manual_seed(3)
    return str(request.param)


def test_philox_is_the_papers() -> None:
    # The known answers that the paper's authors publish with Random123.
    kernel = kw.cuda.compile(
        "#include <kw/philox.cuh>\n"
        'extern "C" __global__ void draw(unsigned* out, unsigned long long c,\n'
        "                                unsigned long long k) {\n"
        "    const uint4 w = kw::philox(c, k);\n"
        "    out[0] = w.x; out[1] = w.y; out[2] = w.z; out[3] = w.w;\n}\n",
        name="draw.cu",
        backend="emulator",
    )["draw"]
    out = torch.zeros(4, dtype=torch.uint32)
    kernel[1, 1](out, 0, 0)
    assert [hex(word) for word in out.tolist()] == [
        "0x6627e8d5",
        "0xe169c58d",
        "0xbc57ac4c",
        "0x9b00dbd8",
    ]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_values_and_gradients(dtype: torch.dtype, device: str) -> None:
    x = torch.randn(3, 1001, device=device).to(dtype).requires_grad_()
    for approximate in ("none", "tanh"):
        out = gelu_dropout(x, 0.25, seed=7, approximate=approximate)
        kept = out != 0
        full = F.gelu(x.double(), approximate=approximate) / 0.75
        near = (16 if dtype == torch.float64 else 4) * torch.finfo(dtype).eps
        torch.testing.assert_close(
            out.double(), torch.where(kept, full, 0.0), rtol=near, atol=near
        )
        (got,) = torch.autograd.grad(out.sum(), x)
        (wanted,) = torch.autograd.grad(torch.where(kept, full, 0.0).sum(), x)
        torch.testing.assert_close(got.double(), wanted.double(), rtol=near, atol=near)
        assert ((got != 0) == kept).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("p", [0.001, 0.1, 0.5, 0.9])
def test_rate(p: float, dtype: torch.dtype, device: str) -> None:
    n = 200_001
    x = torch.ones(n, dtype=dtype, device=device)
    dropped = (gelu_dropout(x, p, seed=11) == 0).double().mean().item()
    assert abs(dropped - p) < 4 * (p * (1 - p) / n) ** 0.5


def test_masks_are_independent(device: str) -> None:
    n = 100_000
    x = torch.ones(n, device=device, dtype=torch.bfloat16)
    masks = [gelu_dropout(x, 0.5, seed=seed) == 0 for seed in (1, 2, 2**40, -1)]
    sigma = 0.5 / n**0.5
    for place, one in enumerate(masks):
        for other in masks[:place]:
            assert abs((one == other).double().mean().item() - 0.5) < 4 * sigma
        for shift in (1, 2, 7, 8, 16, 4096):  # neighbours in a word, a pack, a block
            agree = (one[shift:] == one[:-shift]).double().mean().item()
            assert abs(agree - 0.5) < 5 * sigma


def test_seeds(device: str) -> None:
    x = torch.randn(5000, device=device)
    for _ in range(3):  # a third call repeats what the second recorded
        torch.testing.assert_close(gelu_dropout(x, seed=5), gelu_dropout(x, seed=5))
    assert not torch.equal(gelu_dropout(x), gelu_dropout(x))
    torch.manual_seed(1)
    first = gelu_dropout(x)
    torch.manual_seed(1)
    assert torch.equal(first, gelu_dropout(x))


def test_nothing_and_everything_dropped(device: str) -> None:
    x = torch.randn(100, device=device, requires_grad=True)
    assert torch.equal(gelu_dropout(x, 0.5, training=False), gelu(x))
    assert torch.equal(gelu_dropout(x, 0.0), gelu(x))
    out = gelu_dropout(x, 1.0)
    out.sum().backward()
    assert not out.any() and not x.grad.any()
    with pytest.raises(ValueError, match=r"p is 1\.5"):
        gelu_dropout(x, 1.5)


def test_gradcheck(device: str) -> None:
    x = torch.randn(4, 6, dtype=torch.float64, device=device, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: gelu_dropout(x, 0.4, seed=3), (x,))


def test_compiled(device: str) -> None:
    torch._dynamo.reset()
    x = torch.randn(4, 600, device=device, requires_grad=True)
    backend: Any = "inductor" if device == "cuda" else "aot_eager"
    compiled = torch.compile(
        lambda x: gelu_dropout(x, 0.3), fullgraph=True, backend=backend
    )
    first, second = compiled(x), compiled(x)
    assert not torch.equal(first, second)
    (slope,) = torch.autograd.grad(second.sum(), x)
    assert ((slope != 0) == (second != 0)).all()
