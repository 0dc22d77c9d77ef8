"""solutions.tensor_cores: no worse than twice the library's error, for every shape."""

from __future__ import annotations

import re
from collections import Counter

import pytest
import torch

import kernelwright as kw
from benchmarks.tensor_cores import (
    DTYPES,
    SHAPES,
    check_detective,
    check_large_product,
    expect,
    layouts,
)
from solutions.tensor_cores import gemm, plan_for, tiles
from solutions.tensor_cores.tiles import LARGE, MEDIUM, NARROW, RUNGS, SMALL, Plan

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
LIMITS = {"sm_75": 65_536, "sm_80": 166_912, "sm_86": 101_376, "sm_90": 232_448}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_shape_and_layout(dtype: torch.dtype, device: str) -> None:
    for m, n, k in SHAPES:
        for a, b in layouts(m, n, k, dtype, device):
            for out in (None, torch.float32):
                got = gemm(a, b, out_dtype=out)
                assert got.dtype == (out or dtype) and got.device == a.device
                expect(got, a, b)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", RUNGS)
def test_the_rungs(name: str, dtype: torch.dtype, device: str) -> None:
    rung = RUNGS[name]
    for steps in (0, 1, 2, 5):
        m, n, k = 2 * rung.block[0], rung.block[1], steps * rung.depth
        a, b = next(layouts(m, n, k, dtype, device))
        expect(gemm(a, b, out_dtype=torch.float32, kernel=name), a, b)  # type: ignore[arg-type]


def test_sums_are_kept_in_fp32() -> None:
    ones = torch.ones(4, 4096, dtype=torch.bfloat16)
    # In bf16 a sum of ones stops at 256.
    assert torch.equal(gemm(ones, ones.mT), torch.full((4, 4), 4096).bfloat16())
    large = torch.full((2, 512), 200.0, dtype=torch.float16)
    got = gemm(large, large.mT, out_dtype=torch.float32)
    assert torch.equal(got, torch.full((2, 2), 512 * 40_000.0))
    assert torch.isinf(gemm(large, large.mT)).all()  # past fp16's range, as in torch


@pytest.mark.parametrize("device", DEVICES)
def test_batches_are_broadcast(device: str) -> None:
    for a_shape, b_shape in (
        ((3, 40, 24), (3, 24, 16)),
        ((3, 40, 24), (24, 16)),
        ((40, 24), (2, 24, 16)),
        ((3, 1, 40, 24), (2, 24, 17)),
        ((0, 5, 4), (4, 3)),
        ((2, 5, 0), (0, 3)),
    ):
        a = torch.randn(a_shape, device=device).half()
        b = torch.randn(b_shape, device=device).half()
        expect(gemm(a, b), a, b)


@pytest.mark.parametrize("device", DEVICES)
def test_views_are_read_or_copied(device: str) -> None:
    wide = torch.randn(96, 200, device=device).half()
    for a in (
        wide[:, :64],  # a pitch of its own
        wide[:, 8:72],  # begins 16 bytes further
        wide[:, 3:67],  # begins at an odd address
        wide[::2, ::3],  # no neighbours at all
        wide[:1].expand(33, 200),  # one row for all
        wide[5:6, :70],
        wide[:, 7:8],
    ):
        b = torch.randn(a.shape[1], 40, device=device).half()
        expect(gemm(a, b), a, b)
        expect(gemm(b.mT, a.mT), b.mT, a.mT)


def test_nan_and_inf_arrive() -> None:
    a, b = torch.randn(20, 30).half(), torch.randn(30, 10).half()
    a[3, 4], a[5, 6] = torch.nan, torch.inf
    got, wanted = gemm(a, b), a.double() @ b.double()
    assert torch.equal(got.isnan(), wanted.isnan())
    assert torch.equal(got.isinf(), wanted.isinf())


@pytest.mark.parametrize("device", DEVICES)
def test_gradients(device: str) -> None:
    for a_shape, b_shape in (
        ((20, 30), (30, 10)),
        ((3, 20, 30), (30, 10)),
        ((3, 1, 20, 30), (2, 30, 10)),
    ):
        ours = [torch.randn(s, device=device).bfloat16() for s in (a_shape, b_shape)]
        exact = [x.double().requires_grad_() for x in ours]
        ours = [x.requires_grad_() for x in ours]
        out = gemm(*ours)
        grad = torch.randn_like(out)
        out.backward(grad)
        (exact[0] @ exact[1]).backward(grad.double())
        for x, y in zip(ours, exact, strict=True):
            assert x.grad is not None and y.grad is not None
            assert x.grad.dtype == x.dtype and x.grad.shape == x.shape
            error = (x.grad.double() - y.grad).norm() / y.grad.norm()
            assert error < 2**-8
    one = torch.randn(4, 5, device=device).half().requires_grad_()
    gemm(one, one.detach().mT, out_dtype=torch.float32).sum().backward()
    assert one.grad is not None and one.grad.dtype == torch.float16


def test_a_large_product_on_a_cpu_is_left_to_torch() -> None:
    a, b = torch.randn(600, 500).half(), torch.randn(500, 400).half()
    expect(gemm(a, b), a, b)
    assert torch.equal(gemm(a, b), (a.float() @ b.float()).half())


@pytest.mark.parametrize("device", DEVICES)
def test_the_mended_detective_is_right(device: str) -> None:
    check_detective(device)


def test_wrong_input_is_refused_with_its_mend() -> None:
    x = torch.zeros(4, 5).half()
    with pytest.raises(TypeError, match="a is list; wanted a torch tensor"):
        gemm([[1.0]], x)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"b is torch\.float32.*solutions\.matmul"):
        gemm(x, torch.zeros(5, 4))
    with pytest.raises(TypeError, match=r"wanted the same: b\.to\(a\)"):
        gemm(x, x.mT.bfloat16())
    with pytest.raises(ValueError, match="at least two dimensions"):
        gemm(x[0], x)
    with pytest.raises(ValueError, match=r"a's last dimension \(5\)"):
        gemm(x, x)
    with pytest.raises(ValueError, match="do not broadcast"):
        gemm(x.expand(2, 4, 5), x.mT.expand(3, 5, 4))
    with pytest.raises(ValueError, match=r"move it with a\.cpu"):
        gemm(torch.zeros(2, 2, device="meta").half(), x)
    with pytest.raises(TypeError, match=r"out_dtype is torch\.float64"):
        gemm(x, x.mT, out_dtype=torch.float64)
    with pytest.raises(ValueError, match="no kernel 'fast'"):
        gemm(x, x.mT, kernel="fast")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="is a rung of the chapter: one product"):
        gemm(x, x.mT, kernel="pipelined")


def test_the_plan_fits_the_machine() -> None:
    assert plan_for(8192, 8192, 1, 132, 232_448) == LARGE
    assert plan_for(1024, 2048, 1, 128, 232_448) == MEDIUM
    assert plan_for(256, 256, 1, 132, 232_448) == SMALL
    assert plan_for(256, 256, 66, 132, 232_448) == LARGE
    assert plan_for(8192, 8192, 1, 84, 101_376) == MEDIUM
    assert plan_for(8192, 8192, 1, 40, 65_536) == NARROW
    assert plan_for(8192, 8192, 1, 0, 232_448) == SMALL
    for limit in LIMITS.values():
        for side in (64, 512, 8192):
            assert plan_for(side, side, 1, 100, limit).shared_bytes <= limit


# --- what the compiler makes of it --------------------------------------------------


def mnemonics(sass: str) -> Counter[str]:
    found = re.findall(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", sass)
    return Counter(word.split(".")[0] for word in found)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("plan", [LARGE, MEDIUM, NARROW, SMALL])
def test_no_spills_and_only_wide_loads(plan: Plan, arch: str) -> None:
    source = (tiles.FOLDER / "gemm.cu").read_text()
    module = kw.cuda.compile(source, name="gemm.cu")
    for by_rows in ((True, True), (True, False), (False, True)):
        for whole in (True, False):
            name = plan.expression(torch.bfloat16, torch.bfloat16, by_rows, whole)
            assert module[name].resources(arch).spill_bytes == 0, name
    name = plan.expression(torch.bfloat16, torch.bfloat16, (True, True), True)
    found = mnemonics(module[name].sass(arch))
    assert found["HMMA"] and found["LDSM"] and found["LDGSTS"]
    assert not found["LDG"] and not found["STS"] and not found["LDL"]


def test_on_sm_75_fp16_compiles_and_bf16_says_why_not() -> None:
    source = (tiles.FOLDER / "gemm.cu").read_text()
    module = kw.cuda.compile(source, name="gemm.cu")
    name = NARROW.expression(torch.float16, torch.float16, (True, True), True)
    assert module[name].resources("sm_75").spill_bytes == 0
    found = mnemonics(module[name].sass("sm_75"))
    assert found["HMMA"] and found["LDSM"] and not found["LDGSTS"]
    name = NARROW.expression(torch.bfloat16, torch.bfloat16, (True, True), True)
    with pytest.raises(kw.CompileError, match="needs sm_80"):
        module[name].resources("sm_75")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_wmma_from_shared_memory_is_ldsm(dtype: torch.dtype) -> None:
    source = tiles.rung_source("wmma_shared", dtype)
    found = mnemonics(kw.cuda.compile(source)["wmma_gemm"].sass("sm_90"))
    assert found["LDSM"] and not found["LD"] and not found["MOVM"]
    if dtype == torch.bfloat16:
        # The reason for kw/wmma.cuh; where a new compiler does better, drop it.
        written = tiles.rung_source("wmma_shared", dtype, as_written=True)
        found = mnemonics(kw.cuda.compile(written)["wmma_gemm"].sass("sm_90"))
        assert found["LD"] and found["MOVM"] and not found["LDSM"]


# --- on a GPU -----------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("plan", [LARGE, MEDIUM, NARROW, SMALL])
def test_every_plan_on_a_gpu(plan: Plan) -> None:
    for m, n, k in ((512, 512, 256), (300, 520, 200)):
        for a, b in layouts(m, n, k, torch.bfloat16, "cuda"):
            out = a.new_full((1, m, n), torch.nan)
            operands = [
                tiles.Operand(x, True, x.stride(0), 0)
                if x.is_contiguous()
                else tiles.Operand(x.mT, False, x.stride(1), 0)
                for x in (a, b)
            ]
            if all(operand.pitch % 8 == 0 for operand in operands):
                tiles.launch(plan, *operands, out, m, n, k)
                expect(out[0], a, b)


@pytest.mark.gpu
@pytest.mark.slow
def test_past_2_to_the_31_elements() -> None:
    check_large_product()
