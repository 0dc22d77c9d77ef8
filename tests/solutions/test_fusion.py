"""Fused chains against torch, and what the fuser refuses."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import kernelwright as kw
from solutions.fusion import add_relu, bias_gelu, fuse, gelu, mul_tanh
from solutions.fusion.expression import Node, in_order, parsed, traced
from solutions.fusion.source import Division, source

DEVICES = [pytest.param("cuda", marks=pytest.mark.gpu), "cpu"]
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
SHAPES = [(), (0,), (5,), (3, 7), (4, 16), (2, 3, 33), (4096 * 3 + 1,)]
CHAINS: list[Callable[..., Any]] = [
    lambda x, y: torch.relu(x + y) * 2 - y / 3,
    lambda x, y: torch.where(x > y, x * x, torch.exp(-y.abs())),
    lambda x, y: torch.sigmoid(x) * torch.tanh(y) + F.silu(x),
    lambda x, y: torch.clamp(x, -0.5, 0.5).square() + torch.maximum(x, y),
    lambda x, y: (x**2 + 1).sqrt() * (y**2 + 1).rsqrt() + torch.log1p(x * x),
    lambda x, y: F.leaky_relu(x, 0.1) + torch.cos(y) * torch.sin(x),
    lambda x, y: (x * x + 1) ** 0.3 - torch.minimum(x, y) ** 3 / (1 + y * y),
    lambda x, y: torch.erf(x) * torch.expm1(y) + (1 - x) * x.neg() - 2 / (y.exp() + 1),
    lambda x, y: torch.sub(x, y, alpha=2) + torch.add(y, 1) * (x <= y) + torch.sign(x),
    lambda x, y: (x + 3.5).log() * torch.reciprocal(y.square() + 1) + 1 / (2 + x.abs()),
]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no NVIDIA GPU on this machine")
    torch.manual_seed(2)
    return str(request.param)


def rounded_once(
    got: torch.Tensor, function: Callable[..., torch.Tensor], *given: torch.Tensor
) -> None:
    """Hold against the formula in fp64, rounded: a few units in the last place."""
    wanted = function(*(t.double() for t in given))
    near = 4 * torch.finfo(got.dtype).eps
    torch.testing.assert_close(got.double(), wanted, rtol=near, atol=near)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_values(dtype: torch.dtype, device: str) -> None:
    for shape in SHAPES:
        x, y = torch.randn(2, *shape, device=device).to(dtype)
        rounded_once(gelu(x), F.gelu, x)
        rounded_once(gelu(x, "tanh"), lambda x: F.gelu(x, approximate="tanh"), x)
        rounded_once(add_relu(x, y), lambda x, y: (x + y).relu(), x, y)
        rounded_once(mul_tanh(x, y), lambda x, y: (x * y).tanh(), x, y)
        if shape:
            bias = y.reshape(-1)[: shape[-1]]
            rounded_once(bias_gelu(x, bias), lambda x, b: F.gelu(x + b), x, bias)


@pytest.mark.parametrize("chain", CHAINS, ids=range(len(CHAINS)))
def test_any_chain_and_its_gradient(chain: Callable[..., Any], device: str) -> None:
    fused = fuse(chain)
    x = torch.randn(3, 5, dtype=torch.float64, device=device).clamp(-3, 3)
    y = torch.randn(5, dtype=torch.float64, device=device)
    x, y = x.requires_grad_(), y.requires_grad_()
    torch.testing.assert_close(fused(x, y), chain(x, y))
    assert torch.autograd.gradcheck(fused, (x, y))
    ones = torch.randn(3, 5, dtype=torch.float64, device=device)
    got = torch.autograd.grad(fused(x, y), (x, y), ones)
    wanted = torch.autograd.grad(chain(x, y), (x, y), ones)
    torch.testing.assert_close(got, wanted)


def test_gradients_of_the_named(device: str) -> None:
    x, y = torch.randn(2, 4, 6, dtype=torch.float64, device=device).requires_grad_()
    bias = torch.randn(6, dtype=torch.float64, device=device, requires_grad=True)
    for approximate in ("none", "tanh"):
        assert torch.autograd.gradcheck(lambda x, a=approximate: gelu(x, a), (x,))
        assert torch.autograd.gradcheck(
            lambda x, b, a=approximate: bias_gelu(x, b, a), (x, bias)
        )
    assert torch.autograd.gradcheck(add_relu, (x, y))
    assert torch.autograd.gradcheck(mul_tanh, (x, y))
    with pytest.raises(RuntimeError, match="fused_backward has no gradient"):
        (slope,) = torch.autograd.grad(gelu(x).sum(), x, create_graph=True)
        slope.sum().backward()


def test_layouts(device: str) -> None:
    x = torch.randn(6, 8, device=device)
    odd = torch.randn(50, device=device)[1:49].view(6, 8)
    views = [(x.T, x.T), (x[:, 1:7], odd[:, 1:7]), (x[::2], x[1::2]), (odd, odd)]
    views += [(x, x[0]), (x, x[:, :1]), (x, x[0, 0]), (x[:1], x), (x[None], odd)]
    for one, other in views:
        for _ in range(3):
            torch.testing.assert_close(add_relu(one, other), (one + other).relu())


def test_infinities_and_nan(device: str) -> None:
    x = torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0], device=device)
    found = add_relu(x, torch.zeros_like(x))
    torch.testing.assert_close(found, x.relu(), equal_nan=True)
    largest = fuse(lambda x, y: torch.maximum(x, y))
    one = torch.ones_like(x)
    wanted = torch.maximum(x, one)
    torch.testing.assert_close(largest(x, one), wanted, equal_nan=True)
    torch.testing.assert_close(largest(one, x), wanted, equal_nan=True)


def test_one_kernel_computes_what_is_equal_once() -> None:
    node = traced(lambda x: torch.tanh(x) * torch.tanh(x) + torch.tanh(x), 1)
    assert [one.name for one in in_order([node])].count("tanh") == 1
    text = source([node], torch.float32, ("flat",))
    assert text.count("tanhf(") == 1
    assert parsed(str(node)) == node


def test_numbers_survive_the_text() -> None:
    for value in (0.1, -2.5e-30, math.inf, -math.inf, 3.0):
        assert parsed(str(traced(lambda x, v=value: x + v, 1))).arguments[1] == Node(
            "constant", (), value
        )


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda x: x.sum(), "sum is none of the operations"),
        (lambda x: torch.softmax(x, 0), "softmax is none of the operations"),
        (lambda x: x if x > 0 else -x, r"torch\.where"),
        (lambda x: x + torch.ones(3), "pass a tensor as an argument"),
        (lambda x: "x", "wanted one tensor"),
        (lambda: 1, "takes 0 arguments"),
        (lambda a, b, c, d, e, f, g, h, i: a, "takes 9 arguments"),
        (lambda x: F.gelu(x, approximate="sin"), "approximate is 'sin'"),
    ],
)
def test_what_is_not_fused_is_named(function: Callable[..., Any], says: str) -> None:
    with pytest.raises((TypeError, AttributeError, ValueError), match=says):
        fuse(function)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: gelu([1.0]), "argument 1 is list"),
        (lambda: gelu(torch.arange(3)), r"int64.*x\.float"),
        (lambda: gelu(torch.ones(2, device="meta")), "on meta"),
        (lambda: gelu(torch.ones(2), "erf"), "approximate is 'erf'"),
        (lambda: add_relu(torch.ones(2), torch.ones(3)), "do not broadcast"),
        (lambda: add_relu(torch.ones(2), torch.ones(2).half()), r"y\.to\(x\)"),
        (lambda: bias_gelu(torch.ones(2, 3), torch.ones(2)), r"wanted \(3,\)"),
        (lambda: fuse(lambda x, y: x + y)(torch.ones(1)), "got 1 tensors; wanted 2"),
    ],
)
def test_what_does_not_fit_is_named(call: Callable[[], Any], says: str) -> None:
    with pytest.raises((TypeError, ValueError), match=says):
        call()


def test_compiled_and_transformed(device: str) -> None:
    torch._dynamo.reset()
    fused = fuse(CHAINS[0])
    x = torch.randn(4, 6, device=device, requires_grad=True)
    y = torch.randn(6, device=device)
    backend = "inductor" if device == "cuda" else "aot_eager"
    compiled = torch.compile(
        lambda x, y: gelu(fused(x, y)).sum(), fullgraph=True, backend=backend
    )
    (wanted,) = torch.autograd.grad(F.gelu(CHAINS[0](x, y)).sum(), x)
    (got,) = torch.autograd.grad(compiled(x, y), x)
    torch.testing.assert_close(got, wanted)
    again = torch.func.grad(lambda x: gelu(fused(x, y)).sum())(x.detach())
    torch.testing.assert_close(again, wanted)


def test_rows_are_found_by_a_product() -> None:
    generator = torch.Generator().manual_seed(3)
    drawn = torch.randint(1, 2**31, (200,), generator=generator).tolist()
    for divisor in (1, 2, 3, 7, 127, 128, 1023, 1024, 8191, 2**31 - 1, *drawn):
        way = Division.by(divisor)
        assert way.factor < 2**32  # a word
        near = [k * divisor + d for k in (1, 2, 2**31 // divisor) for d in (-1, 0)]
        for x in (0, 1, 2**31 - 1, *(n for n in near if 0 <= n < 2**31)):
            assert x * way.factor >> way.shift == x // divisor, (x, divisor)


@pytest.mark.parametrize("whole", [True, False])
def test_more_packs_than_31_bits_count(whole: bool, device: str) -> None:
    node = traced(lambda x, b: torch.relu(x + b), 2)
    text = source([node], torch.float32, ("flat", "ragged"), whole, huge=True)
    backend: Any = "gpu" if device == "cuda" else "emulator"
    kernel = kw.cuda.compile(text, name="fused.cu", backend=backend)["fused"]
    n, columns = (1200, 300) if whole else (1202, 601)
    x, b = torch.randn(n, device=device), torch.randn(columns, device=device)
    out = torch.empty_like(x)
    kernel[2, 256](x, b, out, n, columns, *Division.by(1), 0)
    due = (x.view(-1, columns) + b).relu().view(-1)
    torch.testing.assert_close(out, due)
