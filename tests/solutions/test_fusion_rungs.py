"""The rungs of chapter 11: torch's values in float64, and what they move."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import kernelwright as kw
from autograder.exercises.fusion.philox import philox, uniform
from solutions.fusion import source
from solutions.fusion.mul_tanh_triton import mul_tanh

SOURCES = Path(source.__file__).parent
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
# Triton runs where its kernels do: interpreted without a GPU, compiled with one.
TRITON_DEVICE = "cuda" if kw.cuda.backend() == "gpu" else "cpu"
LENGTHS = [1, 3, 8, 255, 1030, 4096]
SEED = 0xDEAD_BEEF


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    torch.manual_seed(11)
    return str(request.param)


def rung(name: str, device: str) -> kw.cuda.Kernel:
    text = (SOURCES / f"{name}.cu").read_text()
    backend: Any = "gpu" if device == "cuda" else "emulator"
    return kw.cuda.compile(text, name=f"{name}.cu", backend=backend)[name]


def near(got: torch.Tensor, right: torch.Tensor, size: torch.Tensor) -> None:
    """Hold to a few roundings of the numbers that it is made of."""
    allowed = 4 * torch.finfo(got.dtype).eps * size.double().abs()
    off = (got.double() - right).abs()
    assert bool((off <= allowed.nan_to_num(0.0)).logical_or(right.isnan()).all())
    assert torch.equal(got.isnan(), right.isnan())


@pytest.mark.parametrize("n", LENGTHS)
def test_gelu(n: int, device: str) -> None:
    x = 3 * torch.randn(n, device=device)
    x[0] = torch.nan
    out = torch.empty_like(x)
    rung("gelu", device)[kw.cdiv(n, 256), 256](x, out, n)
    near(out, F.gelu(x.double()), x)


@pytest.mark.parametrize("n", LENGTHS)
def test_add_relu_is_rounded_once(n: int, device: str) -> None:
    x, y = (torch.randn(n, device=device).half() for _ in range(2))
    x[0], y[-1] = torch.nan, 60_000.0
    out = torch.empty_like(x)
    rung("add_relu", device)[kw.cdiv(n, 8 * 256), 256](x, y, out, n)
    right = torch.relu(x.double() + y.double()).half()
    assert torch.equal(out.nan_to_num(-1.0), right.nan_to_num(-1.0))
    assert torch.equal(out.isnan(), right.isnan())


@pytest.mark.parametrize("shape", [(1, 4), (5, 36), (40, 1028), (64, 1024)], ids=str)
def test_bias_gelu(shape: tuple[int, int], device: str) -> None:
    rows, columns = shape
    x, bias = 3 * torch.randn(shape, device=device), torch.randn(columns, device=device)
    out = torch.empty_like(x)
    grid = kw.cdiv(columns, 1024), kw.cdiv(rows, 16)
    rung("bias_gelu", device)[grid, 256](x, bias, out, rows, columns)
    v = x.double() + bias.double()
    near(out, F.gelu(v, approximate="tanh"), v)


def test_bias_is_read_once_a_block() -> None:
    x, bias = torch.randn(64, 1024), torch.randn(1024)
    kernel = rung("bias_gelu", "cpu").trace.options(blocks="all")
    report = kernel[(1, 4), 256](x, bias, torch.empty_like(x), 64, 1024)
    report.assert_clean()
    assert report.global_load.bytes == x.nbytes + 4 * bias.nbytes
    assert report.global_store.bytes == x.nbytes


def test_philox_gives_the_known_answers() -> None:
    """Of Random123's file of known answers, kat_vectors: philox4x32 of ten rounds."""
    pi = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)
    for counter, key, words in (
        ((0,) * 4, (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (
            (0xFFFFFFFF,) * 4,
            (0xFFFFFFFF,) * 2,
            (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
        ),
        (
            pi,
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ):
        got = philox([torch.tensor([c]) for c in counter], key)
        assert tuple(int(word) for word in got) == words


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("n", LENGTHS)
def test_gelu_dropout(n: int, p: float, device: str) -> None:
    x = torch.randn(n, device=device)
    out = torch.empty_like(x)
    rung("gelu_dropout", device)[kw.cdiv(n, 4 * 256), 256](x, out, n, SEED, p)
    kept = (uniform(n, SEED) >= float(torch.tensor(p))).to(device)
    assert not out[~kept].any()
    right = F.gelu(x[kept].double()) / (1 - p)
    near(out[kept], right, 2 * x[kept] / (1 - p))


def test_dropout_drops_its_share() -> None:
    u = uniform(100_000, SEED)
    assert float(u.min()) >= 0 and float(u.max()) < 1
    # Four standard deviations of a share of 100,000.
    assert abs(float((u < 0.1).double().mean()) - 0.1) < 4 * (0.1 * 0.9 / 1e5) ** 0.5
    other = uniform(100_000, SEED + 1)
    both = float(((u < 0.1) & (other < 0.1)).double().mean())
    assert abs(both - 0.01) < 4 * (0.01 * 0.99 / 1e5) ** 0.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("n", LENGTHS)
def test_mul_tanh_and_its_gradients(n: int, dtype: torch.dtype) -> None:
    x, y, grad = torch.randn(3, n, device=TRITON_DEVICE).to(dtype)
    x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
    out = mul_tanh(x, y)
    dx, dy = torch.autograd.grad(out, (x, y), grad)
    a, b = x.detach().double().requires_grad_(), y.detach().double().requires_grad_()
    right = torch.tanh(a * b)
    da, db = torch.autograd.grad(right, (a, b), grad.double())
    one = torch.ones_like(a)
    near(out.detach(), right.detach(), one)
    near(dx, da, 2 * (grad * y).detach())
    near(dy, db, 2 * (grad * x).detach())


def test_mul_tanh_takes_the_gradient_of_a_sum() -> None:
    """One number, expanded: its strides are 0."""
    x, y = torch.randn(2, 3000, device=TRITON_DEVICE)
    x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
    mul_tanh(x, y).sum().backward()
    assert x.grad is not None and y.grad is not None
    slope = 1 - torch.tanh(x.detach().double() * y.detach().double()) ** 2
    near(x.grad, slope * y.detach(), 2 * y.detach())
    near(y.grad, slope * x.detach(), 2 * x.detach())


def test_mul_tanh_of_nothing() -> None:
    none = torch.empty(0, device=TRITON_DEVICE, requires_grad=True)
    mul_tanh(none, none).sum().backward()
    assert none.grad is not None and none.grad.shape == (0,)
