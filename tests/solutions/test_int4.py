"""Weights of four bits: the quantizer, the packing, both kernels, the layer."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from solutions.int4 import (
    Int4Linear,
    Packed,
    Quantized,
    dequantize,
    layout,
    linear,
    pack,
    product,
    quantize,
    unpack,
)

DEVICES = [pytest.param("cuda", marks=pytest.mark.gpu), "cpu"]
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
# Tokens, rows, columns, columns that share a scale.
SIZES = [
    (1, 40, 256, 128), (5, 16, 200, 128), (8, 33, 72, 64), (3, 130, 1040, 256),
    (9, 50, 128, 16), (20, 200, 264, 128), (70, 128, 512, 32), (33, 300, 64, 48),
    # Rows of x that are no whole packs; groups that no kernel takes.
    (4, 9, 70, 64), (6, 20, 120, 24),
    (0, 16, 64, 64), (2, 0, 64, 64), (2, 5, 0, 64),
]  # fmt: skip


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no NVIDIA GPU on this machine")
    torch.manual_seed(13)
    return str(request.param)


@pytest.mark.parametrize("symmetric", [True, False])
def test_the_quantizers_error_is_the_formulas(symmetric: bool) -> None:
    torch.manual_seed(1)
    weight = torch.randn(2048, 4096, dtype=torch.float64)
    rounded = quantize(weight, 128, symmetric)
    error = (dequantize(rounded) - weight).square().mean()
    # Rounding is even over a step: its variance is a twelfth of the step's square.
    wanted = rounded.scales.square().mean() / 12
    assert abs(error / wanted - 1) < 0.01
    # No number is further from its code's than half a step.
    spread = rounded.scales.repeat_interleave(128, 1)
    assert ((dequantize(rounded) - weight).abs() <= 0.5000001 * spread).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("symmetric", [True, False])
def test_numbers_that_four_bits_hold_come_back(
    dtype: torch.dtype, symmetric: bool
) -> None:
    torch.manual_seed(2)
    least = 1 if symmetric else 0
    codes = torch.randint(least, 16, (6, 100))
    codes[:, ::25], codes[:, 1::25] = least, 15  # each group of 25 has both ends
    weight = ((codes - 8) * 0.25).to(dtype)
    assert torch.equal(dequantize(quantize(weight, 25, symmetric)), weight)


def test_groups_may_be_zero_or_all_of_one_sign() -> None:
    weight = torch.tensor([[0.0, 0.0, 3.0, 4.5], [-2.0, -2.0, 1e-30, 0.0]])
    for symmetric in (True, False):
        rounded = quantize(weight, 2, symmetric)
        assert rounded.scales.isfinite().all()
        torch.testing.assert_close(dequantize(rounded), weight, rtol=0, atol=0.34)
    assert quantize(torch.zeros(0, 5), 2).scales.shape == (0, 3)
    assert quantize(torch.zeros(5, 0), 2).scales.shape == (5, 0)


@pytest.mark.parametrize(
    ("weight", "group_size", "message"),
    [
        (torch.ones(4), 2, r"shape \(4,\); wanted \(rows, columns\)"),
        (torch.ones(4, 4, dtype=torch.int32), 2, "torch.int32; wanted float16"),
        (torch.ones(4, 4), 0, "group_size is 0"),
        (torch.full((2, 2), math.nan), 2, "NaN or infinity"),
        ([[1.0]], 2, "is list"),
    ],
)
def test_what_cannot_be_quantized_is_named(
    weight: Any, group_size: int, message: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        quantize(weight, group_size)


def rounded_like(rows: int, columns: int, group_size: int, device: str) -> Quantized:
    weight = torch.randn(rows, columns, device=device)
    return quantize(weight, group_size, symmetric=False)


@pytest.mark.parametrize(
    ("rows", "columns"), [(16, 64), (1, 1), (33, 200), (40, 128), (0, 9), (9, 0)]
)
def test_codes_come_back_from_their_words(rows: int, columns: int, device: str) -> None:
    given = rounded_like(rows, columns, 32, device)
    packed = pack(given)
    assert packed.words.shape == (-(-rows // 16), -(-columns // 64), 32, 4)
    for got, wanted in zip(unpack(packed)[:3], given[:3], strict=True):
        assert torch.equal(got, wanted)
    # C++ on the CPU and torch's operations on a GPU agree.
    there = layout._packed_there(given.codes, *packed.words.shape[:2])
    assert torch.equal(there, packed.words)
    assert torch.equal(layout._unpacked_there(packed), given.codes)


def test_a_lane_finds_its_codes_where_the_layout_says() -> None:
    """By the definition, one code at a time."""
    given = rounded_like(32, 128, 64, "cpu")
    words = pack(given).words.to(torch.int64) & 0xFFFFFFFF
    for tile, step, lane, f in ((0, 0, 0, 0), (1, 1, 31, 3), (1, 0, 6, 2)):
        g, t = lane // 4, lane % 4
        row, column = 16 * tile + g, 64 * step + 16 * t + 4 * f
        nibbles = [int(words[tile, step, lane, f]) >> 4 * i & 15 for i in range(8)]
        low, high = given.codes[row], given.codes[row + 8]
        wanted = [low[0:], high[0:], low[2:], high[2:], low[1:], high[1:], low[3:]]
        assert nibbles == [int(x[column]) for x in [*wanted, high[3:]]]


def test_many_tiles_are_packed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    given = rounded_like(100, 300, 100, "cpu")
    whole = pack(given)
    monkeypatch.setattr(layout, "_A_PART", 3)
    assert torch.equal(pack(given).words, whole.words)
    assert torch.equal(unpack(whole).codes, given.codes)


def test_what_cannot_be_packed_is_named() -> None:
    given = rounded_like(4, 8, 4, "cpu")
    with pytest.raises(TypeError, match=r"torch.int64 of shape \(4, 8\)"):
        pack(given._replace(codes=given.codes.long()))
    with pytest.raises(ValueError, match="a code is 17; wanted 0 to 15"):
        pack(given._replace(codes=given.codes + 17 - given.codes))
    with pytest.raises(
        ValueError, match=r"scales have shape \(4, 1\); wanted \(4, 2\)"
    ):
        pack(given._replace(scales=given.scales[:, :1]))


def right(x: torch.Tensor, given: Quantized) -> torch.Tensor:
    return x.double() @ dequantize(given, torch.float64).mT


def assert_near(got: torch.Tensor, wanted: torch.Tensor, steps: float = 2.0) -> None:
    """Compare within some roundings of the largest result."""
    assert got.shape == wanted.shape
    if got.numel():
        if got.dtype.itemsize > 2:
            steps = 16.0  # of sums that are rounded at each addition
        most = steps * torch.finfo(got.dtype).eps * float(wanted.abs().max())
        torch.testing.assert_close(got.double(), wanted, rtol=0, atol=most)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", SIZES)
def test_products(
    sizes: tuple[int, int, int, int], dtype: torch.dtype, device: str
) -> None:
    tokens, rows, columns, group_size = sizes
    weight = torch.randn(rows, columns, device=device).to(dtype)
    given = quantize(weight, group_size, symmetric=False)
    packed = pack(given)
    for _ in range(3):  # called, recorded, repeated
        x = torch.randn(tokens, columns, device=device).to(dtype)
        bias = torch.randn(rows, device=device).to(dtype)
        got = linear(x, packed, bias)
        assert got.dtype == dtype and got.is_contiguous()
        assert_near(got, right(x, given) + bias)
    x = torch.randn(2, 1, columns, device=device).to(dtype)
    assert_near(linear(x, packed), right(x, given))


def plans() -> Iterator[product.Plan]:
    yield product.Few(1, 4, 1)
    yield product.Few(2, 8, 4)
    for tiles, splits in ((1, 1), (2, 3), (4, 1), (8, 2)):
        yield product.Many(tiles, splits)
    yield product.Many(2, 2, warps=2, row_tiles=1, stages=2)
    for tiles, splits, groups in (
        (1, 1, 1),
        (1, 8, 2),
        (2, 2, 1),
        (2, 1, 8),
        (2, 4, 4),
    ):
        yield product.Hopper(tiles, splits, groups)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("plan", list(plans()), ids=str)
def test_every_plan_is_right(
    plan: Any, dtype: torch.dtype, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hopper = isinstance(plan, product.Hopper)
    if hopper and (device == "cpu" or torch.cuda.get_device_capability() != (9, 0)):
        pytest.skip("only Hopper has wgmma")
    monkeypatch.setattr(product, "plan_for", lambda *_: plan)
    tokens, rows, columns = (140, 390, 712) if hopper else (19, 150, 456)
    weight = torch.randn(rows, columns, device=device).to(dtype)
    group_size = plan.columns // plan.groups if hopper else 64
    given = quantize(weight, group_size, symmetric=False)
    x = torch.randn(tokens, columns, device=device).to(dtype)
    bias = torch.randn(rows, device=device).to(dtype)
    assert product._fits(x, pack(given))
    for _ in range(2):  # the counters are zeros again
        got = product.multiplied(x, pack(given), bias)
        assert_near(got, right(x, given) + bias)


def test_a_plan_splits_columns_where_rows_are_few() -> None:
    assert product.plan_for(1, 8192, 8192, 128) == product.Few(1)
    # Groups of 32 columns have no kernel for few tokens of their own.
    assert product.plan_for(1, 8192, 8192, 32) == product.Many(1, 4)
    assert product.plan_for(64, 8192, 8192, 128) == product.Many(8, 4)
    assert product.plan_for(256, 8192, 8192, 128) == product.Many(8, 1)
    assert product.plan_for(64, 128, 64, 64) == product.Many(8, 1)
    assert product.plan_for(64, 8192, 8192, 32, True) == product.Hopper(1, 2, 8)
    assert product.plan_for(256, 8192, 8192, 128, True) == product.Hopper(2, 1, 1)
    assert product.plan_for(256, 100, 256, 256, True) == product.Hopper(2, 1, 1)
    # A stage's columns would begin and end within groups.
    assert product.plan_for(64, 8192, 8192, 48, True) == product.Many(8, 4)


def test_scales_of_another_dtype(device: str) -> None:
    given = rounded_like(40, 256, 128, device)  # fp32
    x = torch.randn(5, 256, device=device, dtype=torch.bfloat16)
    narrow = given._replace(scales=given.scales.bfloat16())
    assert_near(linear(x, pack(given)), right(x, narrow))


def test_gradients(device: str) -> None:
    packed = pack(rounded_like(9, 40, 16, device))
    x = torch.randn(3, 40, device=device, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(9, device=device, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(lambda x, b: linear(x, packed, b), (x, bias))
    torch.library.opcheck(
        product.linear_operator.overload, (x, *packed[:3], bias, *packed[3:])
    )
    sizes = (*packed[3:], torch.float32)
    torch.library.opcheck(product.restore_operator.overload, (*packed[:3], *sizes))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", [(33, 200, 40), (16, 64, 64), (1, 1, 1), (5, 48, 7)])
def test_the_matrix_is_restored(
    sizes: tuple[int, int, int], dtype: torch.dtype, device: str
) -> None:
    weight = torch.randn(sizes[:2], device=device).to(dtype)
    given = quantize(weight, sizes[2], symmetric=False)
    assert torch.equal(product.whole(pack(given), dtype), dequantize(given))


def test_a_layer_takes_the_place_of_torchs(device: str) -> None:
    plain = torch.nn.Linear(256, 40, device=device, dtype=torch.bfloat16)
    layer = Int4Linear.from_linear(plain)
    x = torch.randn(2, 5, 256, device=device, dtype=torch.bfloat16)
    given = quantize(plain.weight, 128)
    with torch.no_grad():
        assert_near(layer(x), right(x, given) + plain.bias)
    other = Int4Linear.from_linear(
        torch.nn.Linear(256, 40, device=device, dtype=torch.bfloat16)
    )
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(x), layer(x))
    assert [name for name, _ in layer.named_parameters()] == ["bias"]
    assert "in_features=256, out_features=40" in repr(layer)
    assert Int4Linear.from_linear(torch.nn.Linear(64, 8, bias=False)).bias is None
    # Scales follow a change of dtype; words and zeros stay.
    assert layer.half().scales.dtype == torch.float16
    assert layer.words.dtype == torch.int32 and layer.zeros.dtype == torch.uint8


def test_memory_is_an_eighth_of_fp32s() -> None:
    weight = torch.randn(1024, 4096)
    packed = pack(quantize(weight, 128))
    assert packed.words.nbytes * 8 == weight.nbytes
    narrow = pack(quantize(weight.bfloat16(), 128))
    assert weight.bfloat16().nbytes / narrow.nbytes > 3.8


@pytest.mark.parametrize(
    ("x", "bias", "message"),
    [
        (torch.ones(3, 63), None, r"shape \(3, 63\); wanted \(..., 64\)"),
        (torch.ones(3, 64).long(), None, "x is torch.int64"),
        (torch.ones(3, 64), torch.ones(5), r"shape \(5,\) on cpu; wanted"),
        ("x", None, "x is str"),
    ],
)
def test_what_does_not_fit_is_named(x: Any, bias: Any, message: str) -> None:
    packed = pack(rounded_like(8, 64, 64, "cpu"))
    with pytest.raises((TypeError, ValueError), match=message):
        linear(x, packed, bias)
    assert isinstance(packed.to("cpu"), Packed)


def test_under_autocast(device: str) -> None:
    given = rounded_like(40, 256, 128, device)
    x = torch.randn(5, 256, device=device)
    with torch.autocast(device, torch.bfloat16):
        assert linear(x, pack(given)).dtype == torch.bfloat16


@pytest.mark.gpu
def test_compiled_and_captured() -> None:
    layer = Int4Linear.from_linear(
        torch.nn.Linear(512, 256, device="cuda", dtype=torch.bfloat16)
    )
    x = torch.randn(4, 512, device="cuda", dtype=torch.bfloat16)
    wanted = layer(x)
    compiled = torch.compile(layer, fullgraph=True)
    torch.testing.assert_close(compiled(x), wanted)
    graph, out = torch.cuda.CUDAGraph(), torch.empty_like(wanted)
    with torch.cuda.graph(graph):
        out.copy_(layer(x))
    graph.replay()
    torch.testing.assert_close(out, wanted)
