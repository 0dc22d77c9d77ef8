"""solutions.layernorm: torch's values and gradients, far from zero too; drop-ins."""

from __future__ import annotations

import json

import pytest
import torch
from torch.nn import functional as F

import kernelwright as kw
from benchmarks._store import RESULTS
from benchmarks.layernorm import FLOORS, KINDS, SOURCES, worst_error
from solutions.layernorm import (
    FusedLayerNorm,
    LayerNorm,
    RMSNorm,
    layer_norm,
    layer_norm_relu,
    rms_norm,
)
from solutions.layernorm.launch import source
from solutions.layernorm.plans import backward_plan, forward_plan, pack_width

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
# Empty, odd, no whole packs, a warp's, a block's with packs missing.
SHAPES = ((0, 5), (3, 0), (5,), (3, 7, 33), (9, 250), (6, 1024), (3, 2056))
LONG = ((2, 8192), (2, 12_000), (2, 40_001))
kinds = pytest.mark.parametrize("kind", KINDS)
devices = pytest.mark.parametrize("device", DEVICES)


@devices
@kinds
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_values_and_gradients(kind: str, dtype: torch.dtype, device: str) -> None:
    for shape in SHAPES:
        assert worst_error(kind, shape, dtype, device) < 4, shape


@devices
@kinds
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_long_rows(kind: str, dtype: torch.dtype, device: str) -> None:
    for shape in LONG:
        assert worst_error(kind, shape, dtype, device) < 4, shape


@devices
def test_a_row_of_one_has_no_gradient(device: str) -> None:
    x = torch.randn(4, 1, device=device, requires_grad=True)
    layer_norm(x, 1).sum().backward()
    assert x.grad is not None and not x.grad.any()


@devices
def test_far_from_zero_no_digit_is_lost(device: str) -> None:
    for columns in (1000, 1024, 33_000):
        x = 10_000 + 0.01 * torch.randn(2, columns, device=device)
        exact = F.layer_norm(x.double(), (columns,))
        off = (layer_norm(x, columns).double() - exact).abs().max()
        torchs = (F.layer_norm(x, (columns,)).double() - exact).abs().max()
        assert off < 1e-5 < torchs


@devices
def test_far_from_zero_the_gradients_keep_theirs(device: str) -> None:
    x = (10_000 + 0.01 * torch.randn(3, 512, device=device)).requires_grad_()
    exact = x.detach().double().requires_grad_()
    dy = torch.randn(3, 512, device=device)
    (got,) = torch.autograd.grad(layer_norm(x, 512), x, dy)
    (want,) = torch.autograd.grad(F.layer_norm(exact, (512,)), exact, dy.double())
    assert (got - want).abs().max() < 1e-5 * want.abs().max()


@devices
def test_an_absent_weight_or_bias(device: str) -> None:
    x = torch.randn(4, 96, device=device, requires_grad=True)
    w, b = (torch.randn(96, device=device, requires_grad=True) for _ in range(2))
    for weight, bias in ((None, None), (w, None), (None, b), (w, b)):
        given = [t for t in (x, weight, bias) if t is not None]
        dy = torch.randn_like(x)
        got = layer_norm(x, 96, weight, bias)
        want = F.layer_norm(x, (96,), weight, bias)
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(
            torch.autograd.grad(got, given, dy),
            torch.autograd.grad(want, given, dy),
            rtol=1e-4,
            atol=1e-5,
        )


@devices
def test_gradients_of_some_only(device: str) -> None:
    x, w = torch.randn(4, 96, device=device), torch.randn(96, device=device)
    b = torch.randn(96, device=device, requires_grad=True)
    layer_norm(x, 96, w, b).sum().backward()
    torch.testing.assert_close(b.grad, torch.full_like(b, 4.0))
    with torch.no_grad():
        assert layer_norm(x, 96, w, b).grad_fn is None


@devices
def test_strides_and_addresses(device: str) -> None:
    wide = torch.randn(64, 130, device=device)
    w = torch.randn(65, device=device)[1:]  # not at a multiple of 16 bytes
    for x in (
        wide[:, 1:65],
        wide[::2, :64],
        wide.T[:64].T,
        wide[:1, :64].expand(3, 64),
    ):
        torch.testing.assert_close(layer_norm(x, 64, w), F.layer_norm(x, (64,), w))


@devices
def test_several_dimensions_are_one_row(device: str) -> None:
    x = torch.randn(5, 3, 8, device=device)
    w, b = torch.randn(3, 8, device=device), torch.randn(3, 8, device=device)
    got = layer_norm(x, (3, 8), w, b)
    torch.testing.assert_close(got, F.layer_norm(x, (3, 8), w, b))


@devices
def test_nan_stays_in_its_row(device: str) -> None:
    x = torch.randn(3, 64, device=device)
    x[1, 5] = torch.nan
    for function in (layer_norm, layer_norm_relu, rms_norm):
        y = function(x, 64)
        assert y[1].isnan().all() and not y[[0, 2]].isnan().any()


def test_the_default_eps_of_rms_norm() -> None:
    for dtype in DTYPES:
        x = torch.full((2, 64), 1e-3, dtype=dtype)
        torch.testing.assert_close(rms_norm(x, 64), F.rms_norm(x, (64,)))


def test_the_second_derivative_is_refused() -> None:
    x = torch.randn(2, 8, requires_grad=True)
    (dx,) = torch.autograd.grad(layer_norm(x, 8).pow(2).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="norm_backward has no gradient"):
        dx.sum().backward()


@pytest.mark.parametrize(
    ("ours", "theirs", "arguments"),
    [
        (LayerNorm, torch.nn.LayerNorm, {}),
        (LayerNorm, torch.nn.LayerNorm, {"bias": False}),
        (LayerNorm, torch.nn.LayerNorm, {"elementwise_affine": False}),
        (RMSNorm, torch.nn.RMSNorm, {}),
        (RMSNorm, torch.nn.RMSNorm, {"eps": 1e-3}),
        (FusedLayerNorm, torch.nn.LayerNorm, {}),
    ],
)
def test_modules_are_drop_ins(
    ours: type[torch.nn.Module], theirs: type[torch.nn.Module], arguments: dict
) -> None:
    if ours is FusedLayerNorm:
        made, reference = FusedLayerNorm(48), theirs(48)
    else:
        made, reference = ours(48, **arguments), theirs(48, **arguments)
    for parameter in reference.parameters():
        torch.nn.init.normal_(parameter)
    made.load_state_dict(reference.state_dict())
    assert made.state_dict().keys() == reference.state_dict().keys()
    x = torch.randn(3, 48)
    # torch names the one argument so, and the other x.
    name = "x" if ours is RMSNorm else "input"
    torch.testing.assert_close(made(**{name: x}), reference(**{name: x}))


def test_wrong_input_is_refused_with_its_mend() -> None:
    x, w = torch.zeros(4, 6), torch.zeros(6)
    with pytest.raises(TypeError, match="input is list; wanted a torch tensor"):
        layer_norm([[1.0]], 1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"input is torch.int64; .*input\.float\(\)"):
        layer_norm(x.long(), 6)
    with pytest.raises(ValueError, match=r"input has shape \(4, 6\)"):
        layer_norm(x, 5)
    with pytest.raises(ValueError, match="normalized_shape is empty"):
        layer_norm(x, ())
    with pytest.raises(ValueError, match=r"weight has shape \(4,\); wanted \(6,\)"):
        layer_norm(x, 6, w[:4])
    with pytest.raises(ValueError, match=r"bias has dtype torch.float16.*bias\.to"):
        layer_norm(x, 6, w, w.half())
    with pytest.raises(TypeError, match="weight is float; wanted a torch tensor"):
        rms_norm(x, 6, 1.0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"move it with input\.cpu"):
        layer_norm(x.to("meta"), 6)


@devices
def test_autocast_as_torch(device: str) -> None:
    x = torch.randn(4, 64, device=device).bfloat16()
    with torch.autocast(device, dtype=torch.bfloat16):
        for ours, theirs in ((layer_norm, F.layer_norm), (rms_norm, F.rms_norm)):
            got, want = ours(x, (64,)), theirs(x, (64,))
            assert got.dtype == want.dtype
            torch.testing.assert_close(got, want)


def test_the_stored_figures_reach_the_goal() -> None:
    stored = json.loads((RESULTS / "layernorm-nvidia-h200.json").read_text())
    found = {row["name"]: row for row in stored["rows"] if "of_goal" in row}
    wanted = FLOORS["nvidia-h200"]
    assert found.keys() == wanted.keys()
    for name, row in found.items():
        assert row["of_goal"] >= wanted[name], name
    assert stored["far_ours"] < 1e-6 < stored["far_torch"]


# What the course's sizes launch: these must not spill on any chip of the course.
PLANNED = [
    (c_type, itemsize, columns)
    for c_type, itemsize in (("__nv_bfloat16", 2), ("__half", 2), ("float", 4))
    for columns in (1024, 4096, 8192)
]


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90"])
@pytest.mark.parametrize(("c_type", "itemsize", "columns"), PLANNED)
def test_nothing_spills(c_type: str, itemsize: int, columns: int, arch: str) -> None:
    width = 16 // itemsize
    ahead = forward_plan(columns, width, itemsize)
    back = backward_plan(columns, width, itemsize, True)
    assert ahead is not None and back is not None and ahead.full and back.full
    shape = [f"{p.width}, {p.group}, {p.groups}, {p.packs}" for p in (ahead, back)]
    stages, blocks = (0 if arch == "sm_75" else 2), 8 // back.groups
    blocks = blocks if back.group == 32 else 1
    instances = {
        "forward": f"norm_rows<{c_type}, {shape[0]}, true, false, true>",
        "backward": f"norm_backward<{c_type}, {shape[1]}, {stages}, {blocks}, "
        "true, true, false, false>",
    }
    for stem, instance in instances.items():
        module = kw.cuda.compile(source(stem), backend="emulator")
        # Only machine code is asked for: the instance need not be emulated.
        cubin = module.cubin(instance, arch)
        assert cubin.resources(instance).spill_bytes == 0, instance


def test_packs_are_16_bytes_where_they_fit() -> None:
    assert pack_width(1024, torch.bfloat16, True) == 8
    assert pack_width(1024, torch.bfloat16, False) == 1
    assert pack_width(1023, torch.float32, True) == 1
    module = kw.cuda.compile(source("forward"), backend="emulator")
    name = "norm_rows<__nv_bfloat16, 8, 256, 1, 4, true, false, false>"
    sass = module.cubin(name, "sm_90").sass(name)
    assert "LDG.E.EF.128" in sass and "STG.E.EF.128" in sass


@pytest.mark.parametrize("stem", ["two_pass", "welford", "warp_row"])
def test_the_rungs(stem: str) -> None:
    kernel = kw.cuda.compile(
        (SOURCES / f"{stem}.cu").read_text(), name=f"{stem}.cu", backend="emulator"
    )["layer_norm" if stem == "warp_row" else stem]
    x, w, b = torch.randn(5, 777), torch.randn(777), torch.randn(777)
    out = torch.empty_like(x)
    if stem == "warp_row":
        kernel[2, 128](x, w, b, out, 5, 777, 1e-5)
    else:
        kernel[5, 256](x, w, b, out, 777, 1e-5)
    torch.testing.assert_close(out, F.layer_norm(x, (777,), w, b), rtol=1e-4, atol=1e-5)


def test_each_rung_asks_for_fewer_bytes() -> None:
    x, w, b = torch.randn(4, 768), torch.randn(768), torch.randn(768)
    asked = {}
    for stem, bytes_in in (("two_pass", 20), ("welford", 16), ("warp_row", 12)):
        text = (SOURCES / f"{stem}.cu").read_text()
        kernel = kw.cuda.compile(text)["layer_norm" if stem == "warp_row" else stem]
        trace = kernel.trace.options(blocks="all")
        if stem == "warp_row":
            report = trace[1, 128](x, w, b, torch.empty_like(x), 4, 768, 1e-5)
        else:
            report = trace[4, 256](x, w, b, torch.empty_like(x), 768, 1e-5)
        report.assert_clean()
        asked[stem] = report.global_load.bytes / x.numel()
        assert asked[stem] == bytes_in


@pytest.mark.parametrize(
    ("columns", "shape", "stages"),
    [
        (256, "4, 32, 2, 2, true", 2),
        (252, "4, 32, 4, 2, false", 2),
        (1000, "4, 128, 1, 2, false", 2),
        (77, "1, 64, 1, 2, false", 0),
    ],
)
def test_the_backward_pass_is_clean_under_the_trace(
    columns: int, shape: str, stages: int
) -> None:
    width, group, groups, packs, full = shape.split(", ")
    name = (
        f"norm_backward<float, {width}, {group}, {groups}, {packs}, {stages}, 1, "
        f"{full}, true, false, true>"
    )
    kernel = kw.cuda.compile(source("backward"), backend="emulator")[name]
    rows, blocks = 7, 2
    x, dy = torch.randn(rows, columns), torch.randn(rows, columns)
    w, b, stats = torch.rand(columns), torch.randn(columns), torch.rand(3, rows)
    dx, parts = torch.empty_like(x), torch.empty(2, blocks, columns)
    stage = 2 * 16 * int(packs) * int(group) * int(groups)
    trace = kernel.trace.options(blocks="all", unwritten=("dx", "dweight", "dbias"))
    launch = trace[blocks, (int(group), int(groups)), max(stages * stage, 4 * columns)]
    report = launch(x, dy, w, b, stats, dx, *parts, rows, columns)
    report.assert_clean()
    # x and dy once, dx once; weight and bias, statistics and sums are the rest.
    assert report.global_store.bytes == 4 * (x.numel() + parts.numel())


@pytest.mark.gpu
@pytest.mark.slow
def test_past_2_to_the_31_elements() -> None:
    rows, columns = 2**19 + 8, 4096 + 8
    x = torch.randn(rows, columns, dtype=torch.bfloat16, device="cuda")
    x.requires_grad_()
    assert x.numel() > 2**31
    w = torch.rand(columns, dtype=torch.bfloat16, device="cuda", requires_grad=True)
    y = layer_norm(x, columns, w)
    dy = torch.randn_like(x)
    dx, dw = torch.autograd.grad(y, (x, w), dy)
    for at in (slice(0, 64), slice(rows - 64, rows)):
        part = x.detach()[at].double().requires_grad_()
        want = F.layer_norm(part, (columns,), w.detach().double())
        (slope,) = torch.autograd.grad(want, part, dy[at].double())
        for got, right in ((y[at], want), (dx[at], slope)):
            off = (got.double() - right).abs().max() / right.abs().max()
            assert off < torch.finfo(torch.bfloat16).eps
    del y, dx
    exact = torch.zeros(columns, dtype=torch.float64, device="cuda")
    for at in torch.arange(rows, device="cuda").split(2**15):
        h = F.layer_norm(x.detach()[at].float(), (columns,))
        exact += (h * dy[at].float()).double().sum(0)
    assert ((dw - exact).abs().max() / exact.abs().max()) < 0.01
