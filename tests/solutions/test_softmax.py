"""solutions.softmax: torch's values and gradients, whatever the shape and the dtype."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

import kernelwright as kw
from solutions.softmax import _softmax, launch, softmax
from solutions.softmax.fused import softmax_triton
from solutions.softmax.long_rows import softmax_long_rows
from solutions.softmax.online_update import online_update

SOURCES = Path(launch.__file__).parent
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
# Triton runs where its kernels do: interpreted without a GPU, compiled with one.
DEVICE = "cuda" if kw.cuda.backend() == "gpu" else "cpu"
on_gpu = pytest.mark.gpu
# The interpreter's NumPy says so where a row is nothing but -inf.
no_number = pytest.mark.filterwarnings(
    "ignore:(invalid value|divide by zero):RuntimeWarning"
)
# (outer, length, inner): short, odd and long rows, rows in pieces, and across memory.
THREES = [
    (1, 1, 1), (5, 7, 1), (3, 1000, 1), (2, 4097, 1), (2, 20_001, 1), (2, 40_003, 1),
    (3, 5, 9), (1, 700, 33), (2, 1500, 3), (1, 1500, 3), (2, 6, 300),
]  # fmt: skip


def exact(x: torch.Tensor, dim: int = 1) -> torch.Tensor:
    return torch.softmax(x.double(), dim)


def expect(got: torch.Tensor, right: torch.Tensor, roundings: float = 2.0) -> None:
    """Off by a few roundings of the result, where it is not below all normal ones."""
    info = torch.finfo(got.dtype)
    wide = torch.finfo(torch.float64 if got.dtype == torch.float64 else torch.float32)
    # exp and the sums err by some eps of their own wider type.
    rtol = roundings * info.eps / 2 + 64 * wide.eps
    torch.testing.assert_close(
        got.double(), right, rtol=rtol, atol=max(info.tiny * info.eps, 1e-38),
        equal_nan=True,
    )  # fmt: skip


def there_and_back(x: torch.Tensor, grad: torch.Tensor, out: torch.dtype) -> None:
    """Hold forward_into and backward_into against float64."""
    y = torch.empty_like(x, dtype=out)
    launch.forward_into(x, y)
    expect(y, exact(x))
    slope = torch.empty_like(x)
    launch.backward_into(y, grad, slope)
    v, g = y.double(), grad.double()
    right = v * (g - (v * g).sum(1, keepdim=True))
    wide = torch.float64 if out == torch.float64 else torch.float32
    # y * grad may cancel in the sum and in the difference: relative to the terms.
    room = v * (g.abs() + (v * g.abs()).sum(1, keepdim=True))
    allowed = torch.finfo(x.dtype).eps * right.abs() + 64 * torch.finfo(wide).eps * room
    tiny = torch.finfo(x.dtype).tiny * torch.finfo(x.dtype).eps
    assert bool(((slope.double() - right).abs() <= allowed + tiny).all())


@pytest.mark.parametrize("shape", THREES, ids=str)
def test_the_kernels(shape: tuple[int, int, int]) -> None:
    generator = torch.Generator().manual_seed(sum(shape))
    for dtype in (torch.float32, torch.float64):
        x = 4 * torch.randn(shape, generator=generator, dtype=dtype).to(DEVICE)
        there_and_back(x, torch.randn_like(x), dtype)


@pytest.mark.parametrize("shape", [(5, 77, 1), (1, 33_000, 1), (2, 40, 18)], ids=str)
def test_the_kernels_with_halves(shape: tuple[int, int, int]) -> None:
    x = 4 * torch.randn(shape, device=DEVICE).half()
    there_and_back(x, torch.randn_like(x), torch.float16)
    there_and_back(x, torch.randn(shape, device=DEVICE), torch.float32)


@no_number
@pytest.mark.parametrize("length", [50, 33_000])
@pytest.mark.parametrize("inner", [1, 3])
def test_what_is_no_number_as_torch_has_it(length: int, inner: int) -> None:
    x = torch.randn(7, length, inner, device=DEVICE)
    x[1] = -math.inf
    x[2, : length // 2] = -math.inf  # whole pieces of it
    x[3, 5], x[4, 6] = math.nan, math.inf
    x[5], x[6] = 1e4 * x[5], 3e38
    got = torch.empty_like(x)
    launch.forward_into(x, got)
    wanted = exact(x)
    assert torch.equal(got.isnan(), wanted.isnan())
    assert bool(got[1].isnan().all()) and not got[2, : length // 2].any()
    expect(got, wanted)


def test_every_row_sums_to_one() -> None:
    for length in (3, 9000, 50_000):
        x = 20 * torch.randn(2, length, 1, device=DEVICE)
        out = torch.empty_like(x)
        launch.forward_into(x, out)
        torch.testing.assert_close(
            out.double().sum(1), exact(x).sum(1), rtol=0, atol=1e-5
        )


def test_pieces_are_for_rows_that_registers_do_not_hold() -> None:
    assert launch.REGISTERS // 4 == 16_384
    assert launch.rows_plan(16_384) == (16_384, 1, 32)
    assert launch.rows_plan(8192) == (8192, 1, 16)
    assert launch.rows_plan(1000) == (1024, 2, 4)
    assert launch.rows_plan(5)[:2] == (8, 256)


@no_number
def test_pieces_that_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Interpreted, programs run one after another: then a row is one piece."""
    monkeypatch.setattr(launch, "REGISTERS", 0)
    for length in (1, 5000, 8192) if DEVICE == "cpu" else (1, 8193, 40_003, 520_000):
        for dtype in (torch.float32, torch.float64, torch.float16):
            x = 4 * torch.randn(3, length, 1, device=DEVICE, dtype=dtype)
            there_and_back(x, torch.randn_like(x), dtype)
    # Pieces of -inf beside numbers far below 0, whose exp(0 - maximum) overflows.
    x = torch.full((4, length, 1), -math.inf, device=DEVICE)
    x[0, 7:], x[1, -1], x[2, 1] = -200.0, -1e4, math.inf
    out = torch.empty_like(x)
    launch.forward_into(x, out)
    expect(out, exact(x))
    assert bool(out[2:].isnan().all())


def test_the_chapter_shows_the_code_that_runs() -> None:
    chapter = SOURCES.parents[1] / "chapters" / "08_softmax.md"
    shown = chapter.read_text().split("```python\n")[1].split("```")[0]
    assert "_ticket" in shown and shown in (SOURCES / "side_by_side.py").read_text()


@on_gpu
def test_many_rows_wait_and_longer_ones_are_read_twice() -> None:
    for rows, length in ((1000, 40_003), (3, launch.MOST_TOGETHER * launch.PIECE + 5)):
        x = 4 * torch.randn(rows, length, 1, device="cuda")
        for _ in range(3):
            there_and_back(x, torch.randn_like(x), torch.float32)


def test_autograd_around_the_kernels() -> None:
    """What ``softmax`` does with a CUDA tensor, on whatever device is here."""
    wide = torch.randn(3, 4, 5, device=DEVICE, dtype=torch.float64, requires_grad=True)
    for dim in range(3):
        assert torch.autograd.gradcheck(
            lambda x, dim=dim: _softmax(x, dim, x.dtype), wide
        )
        turned = wide.detach().transpose(0, 2)
        torch.testing.assert_close(
            _softmax(turned, dim, turned.dtype), torch.softmax(turned, dim)
        )
    leaf = torch.randn(6, 9, device=DEVICE).half().requires_grad_()
    y = _softmax(leaf, 1, torch.float32)
    y.sum().backward()  # of a constant 6: an expanded gradient, and no slope
    assert y.dtype == torch.float32 and leaf.grad is not None
    assert leaf.grad.dtype == torch.float16 and leaf.grad.abs().max() < 1e-6
    for shape in ((0, 4), (4, 0)):
        none = torch.empty(shape, device=DEVICE, requires_grad=True)
        _softmax(none, 1, none.dtype).sum().backward()
        assert none.grad is not None and none.grad.shape == shape


# --- the public function ----------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_a_cpu_tensor_goes_to_torch(dtype: torch.dtype, dim: int) -> None:
    x = torch.randn(3, 5, 7).to(dtype).requires_grad_()
    y = softmax(x, dim)
    assert y.dtype == dtype and torch.equal(y, torch.softmax(x, dim))
    grad = torch.randn_like(y)
    (got,) = torch.autograd.grad(y, x, grad)
    (wanted,) = torch.autograd.grad(torch.softmax(x, dim), x, grad)
    assert torch.equal(got, wanted)


def test_dtype_casts_first() -> None:
    x = torch.randint(-5, 5, (4, 6))
    assert torch.equal(
        softmax(x, 1, torch.float32), torch.softmax(x, 1, dtype=torch.float32)
    )
    assert softmax(torch.tensor(3.0), 0).item() == 1.0
    assert softmax(torch.empty(3, 0)).shape == (3, 0)


def test_what_does_not_fit_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match="input is list"):
        softmax([1.0])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="input is torch.int64; wanted float16"):
        softmax(torch.arange(3))
    with pytest.raises(TypeError, match="dtype is torch.int32"):
        softmax(torch.randn(3), 0, torch.int32)
    with pytest.raises(IndexError, match="dim is 2, .*wanted -2 to 1"):
        softmax(torch.randn(3, 4), 2)
    with pytest.raises(ValueError, match="input is on meta"):
        softmax(torch.empty(3, device="meta"))


@on_gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_on_a_gpu_as_torch(dtype: torch.dtype) -> None:
    for shape, dim in (
        ((5,), 0), ((), 0), ((3, 0), 1), ((0, 3), 1), ((3, 7, 33), 1), ((9, 1001), -1),
        ((2, 40_001), 1), ((1500, 6), 0), ((6, 8192), 1), ((40_001, 2), 0),
    ):  # fmt: skip
        x = (3 * torch.randn(shape, device="cuda")).to(dtype).requires_grad_()
        y = softmax(x, dim)
        expect(y.detach(), exact(x.detach(), dim))
        grad = torch.randn_like(y)
        (got,) = torch.autograd.grad(y, x, grad)
        wide = x.detach().double().requires_grad_()
        (right,) = torch.autograd.grad(torch.softmax(wide, dim), wide, grad.double())
        (own,) = torch.autograd.grad(torch.softmax(x, dim), x, grad)
        assert got.dtype == dtype and got.shape == x.shape
        if x.numel():
            # At most twice torch's own error; where it is exact by luck, roundings.
            allowed = 2 * (own.double() - right).abs().max()
            allowed = allowed + 4 * torch.finfo(dtype).eps * right.abs().max() + 1e-7
            assert (got.double() - right).abs().max() <= allowed


@on_gpu
def test_strides_autocast_and_widening() -> None:
    x = torch.randn(40, 3, 50, device="cuda", dtype=torch.bfloat16).transpose(0, 2)
    for dim in range(3):
        expect(softmax(x, dim), exact(x, dim))
    assert softmax(x, 0, torch.float32).dtype == torch.float32
    expect(softmax(x, 0, torch.float32), exact(x, 0))
    with torch.autocast("cuda"):
        assert softmax(x).dtype == torch.softmax(x, -1).dtype == torch.float32
    leaf = x.detach().clone().requires_grad_()
    softmax(leaf, 0, torch.float32).square().sum().backward()
    assert leaf.grad is not None and leaf.grad.dtype == torch.bfloat16
    wide = torch.randn(3, 11, device="cuda", dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(softmax, (wide, 1))


@on_gpu
@pytest.mark.slow
def test_past_2_to_the_31_elements() -> None:
    for rows, columns in ((2**19 + 8, 4096 + 8), (2**15 + 8, 65_536 + 8)):
        x = torch.randn(rows, columns, dtype=torch.bfloat16, device="cuda")
        assert x.numel() > 2**31
        y = softmax(x.requires_grad_())
        (slope,) = torch.autograd.grad(y, x, x.detach())
        for at in (slice(0, 16), slice(rows - 16, rows)):
            part = x.detach()[at].double().requires_grad_()
            right = torch.softmax(part, 1)
            expect(y.detach()[at], right.detach())
            (wanted,) = torch.autograd.grad(right, part, part.detach())
            off = (slope[at].double() - wanted).abs().max() / wanted.abs().max()
            assert off < 4 * torch.finfo(torch.bfloat16).eps
        del x, y, slope


# --- the rungs --------------------------------------------------------------------


def rung(stem: str) -> kw.cuda.Kernel:
    text = (SOURCES / f"{stem}.cu").read_text()
    return kw.cuda.compile(text, name=f"{stem}.cu", backend="emulator")[
        f"softmax_{stem}"
    ]


@pytest.mark.parametrize("stem", ["naive", "safe", "online"])
@pytest.mark.parametrize("columns", [1, 31, 256, 777])
def test_the_cuda_rungs(stem: str, columns: int) -> None:
    x = 5 * torch.randn(4, columns)
    out = torch.empty_like(x)
    rung(stem)[4, 256](x, out, columns)
    expect(out, exact(x))


@pytest.mark.parametrize("stem", ["safe", "online"])
def test_safe_rungs_on_large_numbers_and_on_none(stem: str) -> None:
    x = torch.randn(5, 600)
    x[0] *= 1e4
    x[1, ::2], x[2, :300], x[3] = -math.inf, -math.inf, -math.inf
    x[4, 300] = math.nan
    out = torch.empty_like(x)
    rung(stem)[5, 256](x, out, 600)
    expect(out, exact(x))
    assert bool(out[3:].isnan().all())


def test_the_naive_rung_overflows() -> None:
    x = torch.tensor([[80.0, 0.0], [89.0, 0.0], [-104.0, -105.0]])
    out = torch.empty_like(x)
    rung("naive")[3, 256](x, out, 2)
    assert bool(out[0].isfinite().all()) and bool(out[1:].isnan().any(1).all())


def test_each_cuda_rung_asks_for_fewer_bytes() -> None:
    x = torch.randn(4, 768)
    for stem, sweeps in (("naive", 2), ("safe", 3), ("online", 2)):
        trace = rung(stem).trace.options(blocks="all")
        report = trace[4, 256](x, torch.empty_like(x), 768)
        report.assert_clean()
        assert report.global_load.bytes == sweeps * x.nbytes
        assert report.global_store.bytes == x.nbytes


@pytest.mark.parametrize("cut", [1, 7, 100, 400])
def test_the_rule_in_whatever_pieces(cut: int) -> None:
    x = 5 * torch.randn(6, 400)
    x[1, :250], x[2, 250:], x[3] = -math.inf, -math.inf, -math.inf
    x[4] *= 1e4
    maximum, total = torch.full((6,), -math.inf), torch.zeros(6)
    for values in x.split(cut, dim=1):
        maximum, total = online_update(maximum, total, values)
    assert torch.equal(maximum, x.amax(1)) and total[3] == 0
    right = (x.double() - x.double().amax(1, keepdim=True)).exp().sum(1)
    right[3] = 0
    torch.testing.assert_close(total.double(), right, rtol=1e-5, atol=0)


@no_number
@pytest.mark.parametrize("columns", [1, 100, 4096, 9001])
def test_the_triton_rungs(columns: int) -> None:
    for dtype in (torch.float32, torch.float16):
        x = (5 * torch.randn(3, columns, device=DEVICE)).to(dtype)
        x[1, : columns // 2] = -math.inf
        x[2] = -math.inf
        for function in (softmax_triton, softmax_long_rows):
            got = function(x)
            assert got.dtype == dtype
            expect(got, exact(x))
    for function in (softmax_triton, softmax_long_rows):
        assert function(x[:0]).shape == (0, columns)
