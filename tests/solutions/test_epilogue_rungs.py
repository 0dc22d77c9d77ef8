"""The rungs of chapter 12: a product's sums, finished before they leave registers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn import functional

import kernelwright as kw
from autograder.regions import read_region
from solutions import epilogue
from solutions.epilogue.linear_gelu_fast import linear_gelu_fast
from solutions.epilogue.mlp_fused import mlp_fused

SOURCES = Path(epilogue.__file__).parent
HALO = Path(__file__).parents[2] / "autograder/exercises/epilogue/wrong_halo.cu"
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
# Triton runs where its kernels do: interpreted without a GPU, compiled with one.
TRITON = "cuda" if kw.cuda.backend() == "gpu" else "cpu"
# Its interpreter cannot multiply bf16.
HALVES = [
    torch.float16,
    pytest.param(torch.bfloat16, marks=pytest.mark.gpu),
]


def draw(*shapes: tuple[int, ...], device: str = "cpu") -> list[torch.Tensor]:
    """Draw halves on a device; matrices are made smaller by the root of their rows."""
    generator = torch.Generator().manual_seed(sum(map(sum, shapes)))
    return [
        torch.randn(shape, generator=generator).half().to(device) for shape in shapes
    ]


def layer(
    m: int, n: int, k: int, device: str, dtype: torch.dtype = torch.float16
) -> list[torch.Tensor]:
    """Draw x, weight and bias, whose sums are of the size of 1."""
    x, weight, bias = draw((m, k), (n, k), (n,), device=device)
    return [t.to(dtype) for t in (x, weight / max(1, k) ** 0.5, bias)]


def compiled(text: str, name: str, device: str) -> kw.cuda.Kernel:
    backend: kw.cuda.Backend = "gpu" if device == "cuda" else "emulator"
    return kw.cuda.compile(text, name=f"{name}.cu", backend=backend)[name]


def rung(name: str, device: str) -> kw.cuda.Kernel:
    return compiled((SOURCES / f"{name}.cu").read_text(), name, device)


def expect(got: torch.Tensor, right: torch.Tensor, sums: float = 2e-5) -> None:
    """Rounded once: half an eps of the result, and what the sums in fp32 are off by."""
    assert right.dtype == torch.float64
    torch.testing.assert_close(
        got.double(), right, rtol=0.51 * torch.finfo(got.dtype).eps, atol=sums
    )


@pytest.mark.parametrize("device", DEVICES)
def test_linear_gelu(device: str) -> None:
    kernel = rung("linear_gelu", device)
    for m, n, k in ((128, 128, 0), (256, 128, 192), (128, 384, 64)):
        x, weight, bias = layer(m, n, k, device)
        out = torch.full((m, n), torch.nan, dtype=x.dtype, device=device)
        kernel[(n // 128, m // 128), 128](x, weight, bias, out, m, n, k)
        wide = functional.linear(x.double(), weight.double(), bias.double())
        expect(out, functional.gelu(wide))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("image", "channels", "taps", "stride", "padding"),
    [
        ((2, 7, 9), (16, 72), (3, 3), 1, 1),
        ((1, 13, 6), (48, 8), (5, 2), 2, 2),
        ((3, 4, 4), (32, 136), (1, 1), 1, 0),
        ((1, 12, 11), (16, 64), (3, 3), 3, 0),
        ((2, 2, 3), (16, 8), (7, 7), 1, 3),  # larger than the image
    ],
)
def test_conv_bias_act(
    image: tuple[int, int, int],
    channels: tuple[int, int],
    taps: tuple[int, int],
    stride: int,
    padding: int,
    device: str,
) -> None:
    inside, outside = channels
    shapes = (*image, inside), (outside, *taps, inside), (outside,)
    x, weight, bias = draw(*shapes, device=device)
    weight /= weight[0].numel() ** 0.5
    wide, filters = (t.double().permute(0, 3, 1, 2) for t in (x, weight))
    sums = functional.conv2d(wide, filters, bias.double(), stride, padding)
    right = functional.relu(sums).permute(0, 2, 3, 1)
    out = torch.full(right.shape, torch.nan, dtype=x.dtype, device=device)
    grid = kw.cdiv(outside, 64), kw.cdiv(out.numel() // outside, 128)
    sizes = (*image, *channels, *taps, stride, padding)
    rung("conv_bias_act", device)[grid, 128](x, weight, bias, out, *sizes)
    expect(out, right)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("solved", [True, False], ids=["mended", "broken"])
def test_wrong_halo(solved: bool, device: str) -> None:
    region = read_region(HALO, "wrong_halo")
    text = region.text_solved if solved else region.text_stub
    kernel = compiled(text, "wrong_halo", device)
    x, weight = (t.float() for t in draw((2, 6, 7, 3), (3, 3, 3), device=device))
    out = torch.full_like(x, torch.nan)
    kernel[kw.cdiv(x.numel(), 256), 256](x, weight, out, *x.shape)
    right = functional.conv2d(
        x.double().permute(0, 3, 1, 2),
        weight.double().permute(2, 0, 1)[:, None],
        padding=1,
        groups=3,
    ).permute(0, 2, 3, 1)
    wrong = (out - right).abs() > 1e-5
    # The broken one is wrong at every edge but the tensor's own first and last rows.
    rim = torch.zeros_like(wrong)
    if not solved:
        rim[:, :, [0, -1]] = True
        rim[0, -1], rim[1, 0] = True, True
    assert torch.equal(wrong, rim)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_mlp_fused(dtype: torch.dtype) -> None:
    for rows, d, hidden in ((70, 128, 200), (1, 3, 1), (64, 64, 64), (130, 17, 65)):
        x, w1, b1 = layer(rows, hidden, d, TRITON, dtype)
        _, w2, b2 = layer(0, d, hidden, TRITON, dtype)  # (d, hidden), (d,)
        got = mlp_fused(x, w1, b1, w2, b2)
        wide = [t.double() for t in (x, w1, b1, w2, b2)]
        middle = functional.gelu(functional.linear(*wide[:3]))
        # The hidden layer is rounded for the second product.
        room = 3 * torch.finfo(dtype).eps
        expect(got, functional.linear(middle, *wide[3:]), sums=room)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_linear_gelu_fast(dtype: torch.dtype) -> None:
    shapes = (128, 256, 64), (1, 1, 1), (1300, 33, 70), (65, 130, 129), (5, 3, 0)
    for m, n, k in (*shapes, (0, 4, 4), (4, 0, 4)):
        x, weight, bias = layer(m, n, k, TRITON, dtype)
        got = linear_gelu_fast(x, weight, bias)
        wide = functional.linear(x.double(), weight.double(), bias.double())
        expect(got, functional.gelu(wide))
