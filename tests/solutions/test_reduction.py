"""solutions.reduction: float64's sums within rounding, the same bits every time."""

from __future__ import annotations

import math

import pytest
import torch

import kernelwright as kw
from benchmarks.reduction import SOURCES, check_values, rungs
from solutions import reduction as family
from solutions.reduction import mean_abs, sum_all, sum_squared

SHAPES = (
    (1,),
    (7,),
    (5, 33),
    (33, 5),
    (4, 1000),
    (3, 5003),
    (2, 3, 4, 5),
    (300, 70),
    (40_001,),
    (9001, 3),
    (2, 5001, 8),
    (1, 1, 5),
    (3, 1, 4),
)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def draw(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator).to(dtype).to(device)


def dims_of(x: torch.Tensor) -> list[int | tuple[int, ...] | None]:
    found: list[int | tuple[int, ...] | None] = [None, *range(x.dim()), -1]
    if x.dim() > 2:
        found += [(0, 2), (1, 2), (0, -1), (-1, 0)]
    return found


def assert_near(got: torch.Tensor, wanted: torch.Tensor, dtype: torch.dtype) -> None:
    assert got.shape == wanted.shape and got.dtype == dtype
    assert got.device == wanted.device and got.is_contiguous()
    # Half types round once; fp32 and fp64 sum in their own precision.
    ulps = 1 if dtype in (torch.float16, torch.bfloat16) else 20
    rtol = ulps * torch.finfo(dtype).eps
    torch.testing.assert_close(
        # Where the dtype overflows, so does the right answer.
        got.double(),
        wanted.to(dtype).double(),
        rtol=rtol,
        atol=0,
        equal_nan=True,
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_every_shape_dimension_and_dtype(dtype: torch.dtype, device: str) -> None:
    # On the emulator each new kernel is compiled: half types have few of their own.
    few = device == "cpu" and dtype is not torch.float32
    for shape in SHAPES[2:10:2] if few else SHAPES:
        x = draw(shape, dtype, device)
        wide = x.double()
        for dim in dims_of(x):
            along = tuple(range(x.dim())) if dim is None else dim
            for keep in (False, True):
                wanted = wide.square().sum(along, keepdim=keep)
                assert_near(sum_squared(x, dim, keep), wanted, dtype)
                wanted = wide.abs().mean(along, keepdim=keep)
                assert_near(mean_abs(x, dim, keep), wanted, dtype)
        got = sum_all(x)
        assert got.shape == () and got.dtype == dtype
        far = abs(float(got) - float(wide.sum()))
        assert far <= 2 * torch.finfo(dtype).eps * float(wide.abs().sum())


@pytest.mark.parametrize("device", DEVICES)
def test_nothing_to_add_is_as_torch_has_it(device: str) -> None:
    for shape in ((0,), (0, 3), (3, 0), (2, 0, 4), (0, 0)):
        x = torch.empty(shape, device=device)
        assert sum_all(x) == 0
        for dim in (None, *range(x.dim())):
            along = tuple(range(x.dim())) if dim is None else dim
            assert torch.equal(sum_squared(x, dim), x.square().sum(along))
            got, wanted = mean_abs(x, dim), x.abs().mean(along)
            assert torch.equal(got.nan_to_num(7.0), wanted.nan_to_num(7.0))
    scalar = torch.tensor(-3.0, device=device)
    assert sum_squared(scalar) == 9 and mean_abs(scalar, 0) == 3
    assert sum_all(scalar) == -3 and sum_squared(scalar, ()) == 9


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "dtype",
    [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64],
)
def test_integers_are_added_exactly(dtype: torch.dtype, device: str) -> None:
    high = 2 if dtype is torch.bool else 100
    x = torch.randint(0, high, (3, 5003)).to(dtype).to(device)
    got = sum_all(x)
    assert got.dtype == torch.int64 and int(got) == int(x.sum())
    if dtype is torch.int64:
        # Past what a double holds: modulo 2^64, as torch.
        x = torch.full((1001,), 2**62 + 1, device=device)
        assert int(sum_all(x)) == int(x.sum())


@pytest.mark.parametrize("device", DEVICES)
def test_views_are_summed_as_they_lie(device: str) -> None:
    x = draw((40, 60, 50), torch.float32, device)
    views = (
        x.mT,
        x.permute(2, 0, 1),
        x[::2, 3:, ::3],
        x[..., :1],
        x.expand(40, 60, 50),
    )
    for view in (*views, x[:1].expand(7, 60, 50), x.flatten()[1:]):
        wide = view.double()
        for dim in (None, *range(view.dim())):
            along = tuple(range(view.dim())) if dim is None else dim
            got = sum_squared(view, dim)
            assert_near(got, wide.square().sum(along), torch.float32)
    # A transposed view needs no copy: memory is taken as it lies.
    turned = family.view_for(x.permute(2, 0, 1), (0,))
    assert turned.data.data_ptr() == x.data_ptr()
    assert (turned.outer, turned.length, turned.inner) == (2400, 50, 1)


@pytest.mark.parametrize("device", DEVICES)
def test_nan_and_infinity_go_through(device: str) -> None:
    x = draw((6, 700), torch.float32, device)
    x[1, 3], x[2, 699], x[3, 0] = math.nan, math.inf, -math.inf
    for got, wanted in (
        (sum_squared(x, 1), x.square().sum(1)),
        (mean_abs(x, 1), x.abs().mean(1)),
    ):
        assert torch.equal(got.isnan(), wanted.isnan())
        assert torch.equal(got.isinf(), wanted.isinf())


@pytest.mark.parametrize("device", DEVICES)
def test_gradients(device: str) -> None:
    x = torch.randn(3, 4, 5, dtype=torch.float64, device=device, requires_grad=True)
    assert torch.autograd.gradcheck(sum_all, (x,))
    for function in (sum_squared, mean_abs):
        for dim, keep in ((None, False), (0, True), (1, False), ((0, 2), True)):
            assert torch.autograd.gradcheck(function, (x, dim, keep))
        assert torch.autograd.gradcheck(lambda x, f=function: f(x.mT, 2), (x,))
        assert torch.autograd.gradgradcheck(function, (x, 1))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", FLOATS[1:3], ids=str)
def test_gradients_of_every_layout(dtype: torch.dtype, device: str) -> None:
    for shape in ((5, 33), (16, 64), (3, 1000), (4, 6, 10), (2, 7, 16)):
        for dim in (None, *range(len(shape))):
            x = draw(shape, dtype, device)
            x.view(-1)[3] = 0.0
            ours, theirs = (x.clone().requires_grad_() for _ in range(2))
            along = tuple(range(x.dim())) if dim is None else dim
            for got, wanted in (
                (sum_squared(ours, dim), theirs.double().square().sum(along)),
                (mean_abs(ours, dim), theirs.double().abs().mean(along)),
            ):
                back = draw(tuple(got.shape), dtype, device)
                (mine,) = torch.autograd.grad(got, ours, back)
                (right,) = torch.autograd.grad(wanted, theirs, back.double())
                assert mine.dtype == dtype and mine.shape == x.shape
                eps = torch.finfo(dtype).eps
                torch.testing.assert_close(mine, right, rtol=2 * eps, atol=eps * 1e-3)


@pytest.mark.parametrize("device", DEVICES)
def test_the_bits_are_the_same_every_time(device: str) -> None:
    x = draw((300_007,), torch.float32, device)
    assert len({float(sum_all(x)) for _ in range(5)}) == 1
    columns = draw((5003, 9), torch.float32, device)
    assert torch.equal(mean_abs(columns, 0), mean_abs(columns, 0))


@pytest.mark.gpu
def test_the_gpu_gives_the_emulator_s_bits() -> None:
    for shape, dim in (((300_007,), 0), ((5003, 9), 0), ((40, 3000), 1), ((99, 31), 1)):
        x = draw(shape, torch.float32, "cpu")
        assert torch.equal(sum_all(x), sum_all(x.cuda()).cpu())
        assert torch.equal(mean_abs(x, dim), mean_abs(x.cuda(), dim).cpu())


@pytest.mark.parametrize("device", DEVICES)
def test_sums_are_as_exact_as_promised(device: str) -> None:
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(2**20, generator=generator).to(device)
    exact = float(x.double().sum())
    assert abs(float(sum_all(x)) - exact) < 1e-6 * exact
    half = torch.ones(5000, dtype=torch.float16, device=device)
    assert sum_all(half) == 5000  # fp16's own sum would stop at 2,048


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("rung", rungs())
def test_the_rungs(rung: str, device: str) -> None:
    for n in (1, 33, 256, 5003, 70_001):
        x = draw((n,), torch.float32, device)
        got, wanted = float(rungs()[rung](x)), float(x.double().sum())
        assert abs(got - wanted) < 2e-7 * n**0.5 * max(1.0, n**0.5), n


@pytest.mark.gpu
def test_what_the_benchmark_holds_is_right_here() -> None:
    check_values("cuda")


def test_wrong_input_is_refused_with_its_mend() -> None:
    x = torch.zeros(6, 5)
    with pytest.raises(TypeError, match="x is list; wanted a torch tensor"):
        sum_all([1.0])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"x is torch\.int64; wanted one of float16"):
        sum_squared(x.long())
    with pytest.raises(TypeError, match=r"torch\.complex64"):
        sum_all(x.to(torch.complex64))
    with pytest.raises(IndexError, match="no dimension 2; wanted -2 to 1"):
        mean_abs(x, 2)
    with pytest.raises(RuntimeError, match="names a dimension twice"):
        mean_abs(x, (0, -2))
    with pytest.raises(ValueError, match=r"move it with x\.cpu"):
        sum_squared(torch.zeros(3, device="meta"))


@pytest.mark.parametrize("c_type", ["__half", "float", "double"])
def test_packs_move_16_bytes_an_instruction(c_type: str) -> None:
    module = kw.cuda.compile((SOURCES / "any_dim.cu").read_text())
    for name in (
        f"sum_pieces<{c_type}, Squares, 4>",
        f"sum_short<{c_type}, Squares, 8, true>",
    ):
        kernel = module[name]
        assert "LDG.E.128" in kernel.sass("sm_90") and "SHFL" in kernel.sass("sm_90")
        assert kernel.resources("sm_90").spill_bytes == 0


def test_several_loads_come_before_the_first_addition() -> None:
    module = kw.cuda.compile((SOURCES / "in_flight.cu").read_text())
    for loads in (1, 2, 4, 8):
        code = module[f"sum_in_flight<{loads}>"].sass("sm_90")
        assert code[: code.index("FADD")].count("LDG") == loads


@pytest.mark.gpu
@pytest.mark.slow
def test_past_2_to_the_31_elements() -> None:
    n = 2**31 + 2**20 + 3
    x = torch.ones(n, dtype=torch.int8, device="cuda")
    assert int(sum_all(x)) == n
    x = torch.ones(n, dtype=torch.float16, device="cuda")
    assert mean_abs(x) == 1 and mean_abs(x[None], 1) == 1
    columns = x[: 2**31 + 2**10].view(-1, 1024)
    assert bool((mean_abs(columns, 0) == 1).all())
    assert bool((mean_abs(columns, 1) == 1).all())
    some = x[: 2**31 + 16].view(-1, 16).requires_grad_()
    mean_abs(some, 1).sum().backward()
    assert some.grad is not None and bool((some.grad == 1 / 16).all())
