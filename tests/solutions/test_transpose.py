"""solutions.transpose: the very bits of x.mT, for every shape; wrong input refused."""

from __future__ import annotations

import pytest
import torch

import kernelwright as kw
from benchmarks.transpose import SOURCES, check_particles
from solutions.transpose import packs_fit, transpose

SHAPES = (
    (1, 1),
    (31, 33),
    (64, 64),
    (130, 257),
    (128, 72),
    (1, 100),
    (100, 1),
    (3, 40, 72),
    (200, 8),
    (16, 136),
    (24, 24),
    (2, 3, 5, 7),
)
EMPTY = ((0, 3), (3, 0), (0, 0), (0, 4, 5), (2, 0, 4, 5))
DTYPES = (
    torch.int8,
    torch.bool,
    torch.float8_e4m3fn,
    torch.float16,
    torch.bfloat16,
    torch.int32,
    torch.float32,
    torch.float64,
    torch.complex64,
)
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
RUNGS = ("naive", "tiled", "padded", "swizzled")


def draw(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    # Bits, not numbers: a transpose must not care what they mean.
    size = torch.empty(0, dtype=dtype).element_size()
    high = 2 if dtype is torch.bool else 256
    drawn = torch.randint(0, high, (*shape, size), generator=generator)
    return drawn.to(torch.uint8).view(dtype).view(shape).to(device)


def assert_turned(got: torch.Tensor, x: torch.Tensor) -> None:
    wanted = torch.empty(got.shape, dtype=x.dtype, device=x.device).copy_(x.mT)
    assert got.is_contiguous() and got.shape == x.mT.shape
    assert got.dtype == x.dtype and got.device == x.device
    bits = (t.flatten().view(torch.uint8) for t in (got, wanted))
    assert torch.equal(*bits)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_shape_and_dtype(dtype: torch.dtype, device: str) -> None:
    for shape in SHAPES:
        x = draw(shape, dtype, device)
        assert_turned(transpose(x), x)
        assert_turned(transpose(x, kernel="any"), x)
        if packs_fit(x, x.clone()):
            assert_turned(transpose(x, kernel="registers"), x)
            assert_turned(transpose(x, kernel="staged"), x)


@pytest.mark.parametrize("device", DEVICES)
def test_nothing_to_do(device: str) -> None:
    for shape in EMPTY:
        x = torch.empty(shape, device=device)
        assert transpose(x).shape == x.mT.shape


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kernel", RUNGS)
def test_the_rungs(kernel: str, device: str) -> None:
    shapes = ((32, 32), (100, 36), (4, 200), (33, 65), (1, 7), (65, 2))
    for shape in shapes[:3] if kernel == "swizzled" else shapes:
        x = draw(shape, torch.float32, device)
        assert_turned(transpose(x, kernel=kernel), x)  # type: ignore[arg-type]


@pytest.mark.parametrize("device", DEVICES)
def test_both_texts_of_the_detective_are_right(device: str) -> None:
    check_particles(device)


@pytest.mark.parametrize("device", DEVICES)
def test_addresses_and_strides_that_packs_do_not_fit(device: str) -> None:
    row = draw((64 * 64 + 1,), torch.float16, device)
    shifted = row[1:].view(64, 64)
    assert shifted.data_ptr() % 16
    assert_turned(transpose(shifted), shifted)
    wide = draw((40, 80), torch.float32, device)
    assert_turned(transpose(wide[::2, ::3]), wide[::2, ::3])
    assert_turned(transpose(wide.expand(3, 40, 80)), wide.expand(3, 40, 80))
    # A transposed view lies in the right order already.
    assert_turned(transpose(wide.mT), wide.mT)


@pytest.mark.parametrize("device", DEVICES)
def test_out_is_written_and_returned(device: str) -> None:
    x = draw((36, 68), torch.float32, device)
    out = torch.empty(68, 36, device=device)
    assert transpose(x, out=out) is out
    assert_turned(out, x)


@pytest.mark.parametrize("device", DEVICES)
def test_gradients(device: str) -> None:
    x = torch.randn(2, 3, 5, dtype=torch.float64, device=device, requires_grad=True)
    assert torch.autograd.gradcheck(transpose, (x,))
    with pytest.raises(ValueError, match="out= cannot carry a gradient"):
        transpose(x, out=torch.empty(2, 5, 3, dtype=torch.float64, device=device))


def test_wrong_input_is_refused_with_its_mend() -> None:
    x = torch.zeros(6, 5)
    with pytest.raises(TypeError, match="x is list; wanted a torch tensor"):
        transpose([[1.0]])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="elements of 16 bytes; wanted 1, 2, 4 or 8"):
        transpose(torch.zeros(2, 2, dtype=torch.complex128))
    with pytest.raises(ValueError, match="at least two dimensions"):
        transpose(torch.zeros(3))
    with pytest.raises(ValueError, match=r"move it with x\.cpu"):
        transpose(torch.zeros(2, 2, device="meta"))
    with pytest.raises(ValueError, match=r"out is \(6, 5\).*wanted \(5, 6\)"):
        transpose(x, out=torch.zeros(6, 5))
    with pytest.raises(ValueError, match="out is not contiguous"):
        transpose(x, out=torch.zeros(6, 5).mT)
    with pytest.raises(ValueError, match="no kernel 'fast'"):
        transpose(x, kernel="fast")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="multiples of 4 and x and out begin"):
        transpose(x, kernel="staged")
    with pytest.raises(ValueError, match="is a rung of the chapter: one matrix"):
        transpose(x.double(), kernel="tiled")
    with pytest.raises(ValueError, match="rows and columns must be multiples of 4"):
        transpose(x, kernel="swizzled")


@pytest.mark.parametrize("plan", ["transpose_registers<{}, 4, 2, 4>", "staged"])
@pytest.mark.parametrize("c_type", ["short", "int", "long long"])
def test_packs_move_16_bytes_an_instruction(plan: str, c_type: str) -> None:
    name = "transpose_staged<{}, 16>" if plan == "staged" else plan
    kernel = kw.cuda.compile((SOURCES / "any_size.cu").read_text())[name.format(c_type)]
    sass = kernel.sass("sm_90")
    assert "LDG.E.128" in sass and "STG.E.EF.128" in sass
    assert kernel.resources("sm_90").spill_bytes == 0


@pytest.mark.gpu
def test_past_2_to_the_31_elements() -> None:
    for shape in ((2**16 + 8, 2**15 + 16), (2**16 + 1, 2**15 + 1)):
        x = torch.randint(-100, 100, shape, dtype=torch.int8, device="cuda")
        assert torch.equal(transpose(x), x.mT)
