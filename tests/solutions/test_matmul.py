"""solutions.matmul: torch.matmul's values and shapes, for every layout and edge."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import kernelwright as kw
from solutions import matmul as family
from solutions.matmul import matmul

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
DTYPES = (torch.float32, torch.float64)
SHAPES = (
    (1, 1, 1),
    (64, 64, 64),
    (65, 63, 17),
    (130, 132, 36),
    (128, 256, 40),
    (3, 200, 5),
    (200, 3, 9),
    (1, 70, 130),
    (33, 1, 31),
    (40, 44, 4),
)
PLANS = (*family._COPIED, *family._LOADED)
RUNGS = (
    *("naive", "coalesced", "tiled", "register_blocked"),
    *("wide", "warp_tiles", "double_buffered"),
)


def draw(*shape: int, dtype: torch.dtype = torch.float32, device: str) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator, dtype=dtype).to(device)


def assert_product(got: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> None:
    """Compare with float64, within what rounding k times may do."""
    left, right = a.double().cpu(), b.double().cpu()
    wanted = torch.matmul(left, right)
    assert got.shape == wanted.shape and got.dtype == a.dtype
    assert got.device == a.device
    k = a.shape[-1]
    scale = torch.matmul(left.square(), right.square()).sqrt()
    bound = 4 * torch.finfo(a.dtype).eps * max(1, k) ** 0.5 * scale
    assert bool(((got.double().cpu() - wanted).abs() <= bound + 1e-300).all())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_shape_and_layout(dtype: torch.dtype, device: str) -> None:
    for m, n, k in SHAPES:
        for a in (draw(m, k, dtype=dtype, device=device),
                  draw(k, m, dtype=dtype, device=device).mT):  # fmt: skip
            for b in (draw(k, n, dtype=dtype, device=device),
                      draw(n, k, dtype=dtype, device=device).mT):  # fmt: skip
                assert_product(matmul(a, b), a, b)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "plan", PLANS, ids=lambda p: f"{p.rows}x{p.columns}x{p.stages}"
)
@pytest.mark.parametrize("shape", [(130, 132, 36), (129, 131, 35), (257, 260, 4)])
def test_every_plan(
    plan: family.Plan, shape: tuple[int, int, int], device: str
) -> None:
    m, n, k = shape
    # One layout of each operand with every plan; all four with one plan of a kind.
    all_layouts = plan in (family.PIPELINED, family.LARGE)
    for a in (draw(m, k, device=device), draw(k, m, device=device).mT):
        for b in (draw(k, n, device=device), draw(n, k, device=device).mT):
            if not (all_layouts or (a.is_contiguous() and b.is_contiguous())):
                continue
            out = torch.full((m, n), torch.nan, device=device)
            family._launch(a, b, out, plan)
            assert_product(out, a, b)


@pytest.mark.parametrize("device", DEVICES)
def test_nothing_to_do(device: str) -> None:
    for m, n, k in ((0, 3, 4), (3, 0, 4), (3, 4, 0), (0, 0, 0)):
        a, b = torch.ones(m, k, device=device), torch.ones(k, n, device=device)
        assert torch.equal(matmul(a, b), torch.matmul(a, b))
    empty = torch.ones(0, 2, 3, device=device)
    assert matmul(empty, torch.ones(3, 4, device=device)).shape == (0, 2, 4)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((7,), (7,)),
        ((7,), (7, 5)),
        ((5, 7), (7,)),
        ((3, 5, 7), (7,)),
        ((7,), (3, 7, 5)),
        ((3, 5, 7), (3, 7, 4)),
        ((3, 5, 7), (7, 4)),
        ((5, 7), (3, 7, 4)),
        ((2, 1, 5, 8), (3, 8, 4)),
        ((2, 3, 5, 8), (2, 3, 8, 4)),
        ((1, 3, 5, 8), (2, 1, 8, 4)),
    ],
    ids=str,
)
def test_broadcasting_is_torchs(
    left: tuple[int, ...], right: tuple[int, ...], device: str
) -> None:
    a, b = draw(*left, device=device), draw(*right, device=device)
    wanted = torch.matmul(a, b)
    got = matmul(a, b)
    assert got.shape == wanted.shape
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
def test_views_are_read_where_they_lie(device: str) -> None:
    big = draw(6, 40, 64, device=device)
    for a in (
        big[0, :, 1:30],
        big[0, ::2, ::3],
        big[1].mT[:, 3:20],
        big[2, 5:6].expand(8, 64),
        big[:, 3, :],
        big[:, :, 4:36].transpose(0, 1),
    ):
        b = draw(a.shape[-1], 12, device=device)
        assert_product(matmul(a, b), a, b)
    a = big[::2, :, :32]
    b = draw(32, 16, device=device).expand(3, 32, 16)
    assert_product(matmul(a, b), a, b)
    assert family.operand(a, (3,), True).data.data_ptr() == a.data_ptr()
    assert family.operand(b, (3,), False).batch == 0


def test_the_plan_fills_the_chip() -> None:
    like = torch.empty(0)  # reckons with the 132 SMs of an H200
    assert family.plan_for(4096, 4096, 1, like) is family.PIPELINED
    assert family.plan_for(4096, 4096, 1, like, both_by_k=True) is family.MEDIUM
    assert family.plan_for(1024, 1024, 1, like) is family.FLAT
    assert family.plan_for(1024, 1024, 32, like) is family.PIPELINED
    assert family.plan_for(512, 512, 1, like) is family.TINY
    assert family.plan_for(16384, 64, 1, like) is family.SQUARE
    assert family.plan_for(512, 512, 1, like.double()) is family.DOUBLE


def test_packs_are_used_where_they_fit() -> None:
    x = draw(40, 64, device="cpu")
    assert family.operand(x, (), True).wide
    assert family.operand(x[:, 4:36], (), True).wide
    assert not family.operand(x[:, 1:33], (), True).wide
    assert not family.operand(x[:, :34], (), True).wide
    turned = family.operand(x.mT, (), True)
    assert turned.wide and not turned.by_k and turned.along == 64


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kernel", RUNGS)
def test_the_rungs(kernel: str, device: str) -> None:
    for m, n, k in ((64, 96, 32), (33, 68, 20), (1, 4, 8), (130, 140, 36)):
        a, b = draw(m, k, device=device), draw(k, n, device=device)
        assert_product(matmul(a, b, kernel=kernel), a, b)  # type: ignore[arg-type]


@pytest.mark.parametrize("device", DEVICES)
def test_special_values_stay_in_their_rows(device: str) -> None:
    a, b = draw(70, 20, device=device), draw(20, 72, device=device)
    a[3, 19], b[19, 5] = torch.inf, torch.nan
    for kernel in ("auto", *RUNGS):
        got = matmul(a, b, kernel=kernel)  # type: ignore[arg-type]
        assert torch.equal(got.isfinite(), torch.matmul(a, b).isfinite())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("left", "right"),
    [((4, 3), (3, 5)), ((2, 4, 3), (3, 5)), ((2, 1, 4, 3), (3, 3, 2)), ((3,), (3, 2))],
    ids=str,
)
def test_gradients(left: tuple[int, ...], right: tuple[int, ...], device: str) -> None:
    a, b = (
        draw(*shape, dtype=torch.float64, device=device).requires_grad_()
        for shape in (left, right)
    )
    assert torch.autograd.gradcheck(matmul, (a, b))
    assert torch.autograd.gradgradcheck(matmul, (a, b))


def test_large_products_on_the_cpu_are_torchs() -> None:
    a, b = draw(300, 300, device="cpu"), draw(300, 300, device="cpu")
    assert torch.equal(matmul(a, b), torch.matmul(a, b))


def test_wrong_input_is_refused_with_its_mend() -> None:
    a = torch.zeros(6, 5)
    with pytest.raises(TypeError, match="a is list; wanted a torch tensor"):
        matmul([[1.0]], a)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"solutions\.tensor_cores\.gemm"):
        matmul(a.half(), a.half())
    with pytest.raises(TypeError, match=r"is torch\.int64; wanted float32 or float64"):
        matmul(a.long(), a.long())
    with pytest.raises(ValueError, match=r"wanted the same: b\.to\(a\)"):
        matmul(a, a.mT.double())
    with pytest.raises(ValueError, match=r"5, and b's last but one, 6, must be equal"):
        matmul(a, a)
    with pytest.raises(ValueError, match="do not broadcast"):
        matmul(a.expand(2, 6, 5), a.mT.expand(3, 5, 6))
    with pytest.raises(ValueError, match="multiply with a"):
        matmul(torch.tensor(1.0), a)
    with pytest.raises(ValueError, match=r"move it with a\.cpu"):
        matmul(a.to("meta"), a.mT.to("meta"))
    with pytest.raises(ValueError, match="no kernel 'fastest'"):
        matmul(a, a.mT, kernel="fastest")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="is a rung of the chapter"):
        matmul(a.double(), a.mT.double(), kernel="tiled")
    with pytest.raises(ValueError, match="must be multiples of 4; got n = 6, k = 5"):
        matmul(a, a.mT, kernel="double_buffered")


@pytest.mark.parametrize("a_by_k", [True, False], ids=["a by k", "a by m"])
@pytest.mark.parametrize("b_by_k", [True, False], ids=["b by k", "b by n"])
def test_registers_hold_it_and_16_bytes_are_moved(a_by_k: bool, b_by_k: bool) -> None:
    source = Path(family.__file__).with_name("any_shape.cu").read_text()
    module = kw.cuda.compile(source, backend="emulator")
    natural = a_by_k and not b_by_k  # the table of resources holds all plans so
    for plan in PLANS if natural else (family.PIPELINED,):
        kernel = module[plan.expression(torch.float32, a_by_k, b_by_k, True)]
        sass = kernel.sass("sm_90")
        assert "LDS.128" in sass and "STG.E.128" in sass
        assert ("LDGSTS" in sass) == bool(plan.stages)
        assert kernel.resources("sm_90").spill_bytes == 0, (plan, a_by_k, b_by_k)


@pytest.mark.gpu
@pytest.mark.slow
def test_past_2_to_the_31_elements() -> None:
    def probe(out: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> None:
        for part in (slice(0, 5), slice(-5, None)):
            wanted = a[part].double() @ b.double()
            torch.testing.assert_close(out[part].double(), wanted, rtol=1e-5, atol=1e-5)

    a = torch.randn(65_600, 8, device="cuda")
    b = torch.randn(8, 32_800, device="cuda")
    probe(matmul(a, b), a, b)  # c: 2.15e9 elements
    a = torch.randn(2**29 + 5, 4, device="cuda")
    b = torch.randn(4, 8, device="cuda")
    probe(matmul(a, b), a, b)  # a
