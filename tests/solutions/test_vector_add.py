"""solutions.vector_add: right in value, dtype and shape; wrong input refused."""

from __future__ import annotations

import pytest
import torch

import kernelwright as kw
from solutions.vector_add import add_one, saxpy, vector_add
from solutions.vector_add.triton_add import (
    add_one as triton_add_one,
)
from solutions.vector_add.triton_add import (
    saxpy as triton_saxpy,
)
from solutions.vector_add.triton_add import (
    vector_add as triton_add,
)
from solutions.vector_add.triton_add import vector_add_triton

SIZES = (0, 1, 3, 7, 31, 33, 255, 257, 1009)
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
# Triton runs where its kernels do: interpreted without a GPU, compiled with one.
TRITON_DEVICE = "cuda" if kw.cuda.backend() == "gpu" else "cpu"


def draw(*shape: int, dtype: torch.dtype, device: str, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(dtype).to(device)


def assert_saxpy(got: torch.Tensor, a: float, x: torch.Tensor, y: torch.Tensor) -> None:
    """One rounding of each of the two terms, and no more, is allowed."""
    product, other = a * x.double(), y.double()
    bound = torch.finfo(got.dtype).eps * (product.abs() + other.abs())
    assert got.dtype == x.dtype and got.shape == x.shape
    assert bool(((got.double() - product - other).abs() <= bound).all())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_length_and_dtype(dtype: torch.dtype, device: str) -> None:
    for n in SIZES:
        x = draw(n, dtype=dtype, device=device)
        y = draw(n, dtype=dtype, device=device, seed=1)
        # One addition is rounded once: the bits must be torch's.
        assert torch.equal(vector_add(x, y), x + y)
        assert torch.equal(add_one(x), x + 1)
        assert_saxpy(saxpy(1.75, x, y), 1.75, x, y)


@pytest.mark.parametrize("device", DEVICES)
def test_slices_that_no_wide_load_may_touch(device: str) -> None:
    x = draw(1010, dtype=torch.float16, device=device)
    y = draw(1010, dtype=torch.float16, device=device, seed=1)
    assert x[1:].data_ptr() % 16
    assert torch.equal(vector_add(x[1:], y[1:]), x[1:] + y[1:])
    assert torch.equal(add_one(x[1:]), x[1:] + 1)
    assert_saxpy(saxpy(-3.0, x[1:], y[1:]), -3.0, x[1:], y[1:])


@pytest.mark.parametrize("device", DEVICES)
def test_shapes_and_strides(device: str) -> None:
    x = draw(33, 17, dtype=torch.float32, device=device).t()
    y = draw(17, 33, dtype=torch.float32, device=device, seed=1)
    assert not x.is_contiguous()
    assert torch.equal(vector_add(x, y), x + y)
    assert torch.equal(vector_add(y[::2], y[::2]), 2 * y[::2])
    scalar = torch.tensor(2.0, device=device)
    assert torch.equal(add_one(scalar), torch.tensor(3.0, device=device))


@pytest.mark.parametrize("device", DEVICES)
def test_special_values(device: str) -> None:
    x = torch.tensor([torch.nan, torch.inf, -torch.inf, -0.0, 3e38], device=device)
    y = torch.tensor([1.0, -torch.inf, 1.0, 0.0, 3e38], device=device)
    torch.testing.assert_close(vector_add(x, y), x + y, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("n", SIZES)
def test_the_rungs(n: int, device: str) -> None:
    x = draw(n, dtype=torch.float32, device=device)
    y = draw(n, dtype=torch.float32, device=device, seed=1)
    for kernel in ("guarded", "vectorized"):
        assert torch.equal(vector_add(x, y, kernel=kernel), x + y)
    assert_saxpy(saxpy(2.5, x, y, kernel="grid_stride"), 2.5, x, y)


@pytest.mark.parametrize("device", DEVICES)
def test_out_is_written_and_returned(device: str) -> None:
    x = draw(257, dtype=torch.float32, device=device)
    out = torch.empty_like(x)
    assert vector_add(x, x, out=out) is out
    assert torch.equal(out, 2 * x)


@pytest.mark.parametrize("device", DEVICES)
def test_gradients(device: str) -> None:
    x = draw(5, dtype=torch.float64, device=device).requires_grad_()
    y = draw(5, dtype=torch.float64, device=device, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(add_one, (x,))
    assert torch.autograd.gradcheck(vector_add, (x, y))
    assert torch.autograd.gradcheck(lambda x, y: saxpy(1.75, x, y), (x, y))
    with pytest.raises(ValueError, match="out= cannot carry a gradient"):
        vector_add(x, y, out=torch.empty_like(y))
    with torch.no_grad():
        assert torch.equal(vector_add(x, y, out=torch.empty_like(y)), x + y)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_triton_gives_the_same(dtype: torch.dtype) -> None:
    # Triton's interpreter cuts fp32 off to bf16 where a GPU rounds to nearest.
    cut = dtype == torch.bfloat16 and TRITON_DEVICE == "cpu"
    for n in (0, 1, 1025):
        x = draw(n, dtype=dtype, device=TRITON_DEVICE)
        y = draw(n, dtype=dtype, device=TRITON_DEVICE, seed=1)
        rtol = torch.finfo(dtype).eps if cut else 0
        torch.testing.assert_close(triton_add(x, y), x + y, rtol=rtol, atol=0)
        torch.testing.assert_close(triton_add_one(x), x + 1, rtol=rtol, atol=0)
        assert_saxpy(triton_saxpy(1.1, x, y), 1.1, x, y)


@pytest.mark.parametrize("n", SIZES)
def test_triton_as_in_the_exercise(n: int) -> None:
    x = draw(n, dtype=torch.float32, device=TRITON_DEVICE)
    y = draw(n, dtype=torch.float32, device=TRITON_DEVICE, seed=1)
    assert torch.equal(vector_add_triton(x, y), x + y)


def test_wrong_input_is_refused_with_its_mend() -> None:
    x = torch.zeros(4)
    with pytest.raises(TypeError, match="x is list; wanted a torch tensor"):
        add_one([1.0])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"int64; wanted .* x\.float\(\)"):
        add_one(torch.zeros(4, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"y has shape \(5,\) and x has \(4,\)"):
        vector_add(x, torch.zeros(5))
    with pytest.raises(ValueError, match=r"dtype torch.float64 .* y\.to\(x\.dtype\)"):
        saxpy(1.0, x, x.double())
    with pytest.raises(ValueError, match=r"move it with x\.cpu"):
        add_one(torch.zeros(4, device="meta"))
    with pytest.raises(ValueError, match="out is not contiguous"):
        vector_add(x, x, out=torch.zeros(8)[::2])
    with pytest.raises(ValueError, match=r"out has shape \(3,\)"):
        vector_add(x, x, out=torch.zeros(3))
    with pytest.raises(ValueError, match="no kernel 'fast'"):
        vector_add(x, x, kernel="fast")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="multiples of 16 bytes"):
        vector_add(x[1:], x[1:], kernel="vectorized")
    with pytest.raises(ValueError, match="is a rung of the chapter: float32"):
        saxpy(1.0, x.double(), x.double(), kernel="grid_stride")


@pytest.mark.parametrize(
    ("stem", "kernel"),
    [
        ("vectorized", "vector_add_vec4"),
        *(("any_dtype", f"packed_add<{t}>") for t in ("float", "double", "__half")),
        ("any_dtype", "packed_saxpy<__nv_bfloat16>"),
    ],
)
def test_wide_rungs_move_16_bytes_an_instruction(stem: str, kernel: str) -> None:
    from benchmarks.vector_add import SOURCES

    found = kw.cuda.compile((SOURCES / f"{stem}.cu").read_text())[kernel]
    sass = found.sass("sm_90")
    assert "LDG.E.128" in sass and "STG.E.128" in sass
    assert found.resources("sm_90").spill_bytes == 0


@pytest.mark.gpu
def test_past_2_to_the_31_elements() -> None:
    n = 2**31 + 2**10 + 5
    x = torch.ones(n, dtype=torch.float16, device="cuda")
    x[-1000:] = torch.arange(1000, device="cuda").half()
    out = vector_add(x, x)
    assert torch.equal(out[-1000:], 2 * x[-1000:])
    assert bool((out[:-1000] == 2).all())
    out = saxpy(3.0, x, x)
    assert torch.equal(out[-1000:], 4 * x[-1000:])
    assert bool((add_one(x)[:-1000] == 2).all())


@pytest.mark.gpu
def test_cupy_gives_the_same() -> None:
    import cupy

    from solutions.vector_add.cupy_add import vector_add_elementwise, vector_add_raw

    for n in SIZES:
        x = draw(n, dtype=torch.float32, device="cuda")
        y = draw(n, dtype=torch.float32, device="cuda", seed=1)
        a, b = cupy.from_dlpack(x), cupy.from_dlpack(y)
        for add in (vector_add_raw, vector_add_elementwise):
            assert torch.equal(torch.from_dlpack(add(a, b)), x + y)
    with pytest.raises(ValueError, match="adds float32"):
        vector_add_raw(a.astype("float64"), b)
