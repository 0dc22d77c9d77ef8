"""Layers with their epilogues against torch, in every dtype, with gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from solutions.epilogue import (
    FusedConv2d,
    FusedLinear,
    FusedMLP,
    conv2d_bias_act,
    gated_mlp,
    linear,
    linear_gelu,
    mlp,
)
from solutions.epilogue.activations import (
    _finish_texts,
    _gate_texts,
    finished,
    through_gate,
    through_layer,
)
from solutions.fusion.launch import computed

DEVICES = [pytest.param("cuda", marks=pytest.mark.gpu), "cpu"]
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
ACTIVATIONS: dict[Any, Callable[[torch.Tensor], torch.Tensor]] = {
    None: lambda x: x,
    "relu": torch.relu,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
}
# Rows, in and out features: whole tiles, rims, less than a tile, rows of odd lengths.
SIZES = [(128, 64, 256), (7, 24, 40), (300, 200, 520), (5, 7, 9), (1, 8, 1), (0, 8, 8)]
IMAGES = [
    # images, rows, columns, channels, out channels, kernel, stride, padding
    (2, 8, 8, 16, 24, 3, 1, 1),
    (3, 14, 15, 8, 136, 3, 1, 1),
    (2, 13, 12, 24, 8, 5, 2, 2),
    (1, 9, 11, 8, 16, 1, 2, 0),
    (2, 7, 7, 8, 8, 3, 1, 0),
    (1, 6, 6, 5, 7, 3, 2, 1),
    (1, 10, 10, 8, 8, 3, 3, 1),
]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no NVIDIA GPU on this machine")
    torch.manual_seed(4)
    return str(request.param)


def drawn(*shape: int, device: str, dtype: torch.dtype, scale: float = 1.0) -> Any:
    return (scale * torch.randn(*shape, device=device)).to(dtype).requires_grad_()


def held_against(
    got: torch.Tensor, given: list[Any], wanted: torch.Tensor, exact: list[Any]
) -> None:
    """Compare a result and all gradients with those in fp64.

    Sums of some hundred products, rounded to 16 bits once or, between two layers and
    on the way back, twice: a few units in the last place of the largest.
    """
    near = 6 * torch.finfo(got.dtype).eps
    slope = torch.randn_like(wanted)
    assert got.shape == wanted.shape and got.dtype == given[0].dtype

    def close(mine: torch.Tensor, due: torch.Tensor) -> None:
        top = due.abs().max().item() if due.numel() else 0.0
        torch.testing.assert_close(
            mine.double(), due, rtol=near, atol=near * max(top, 1e-30)
        )

    close(got, wanted)
    mine = torch.autograd.grad(got, given, slope.to(got.dtype))
    rounded = slope.to(got.dtype).double()
    for one, due in zip(mine, torch.autograd.grad(wanted, exact, rounded), strict=True):
        close(one, due)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_linear(activation: Any, dtype: torch.dtype, device: str) -> None:
    for rows, inner, columns in SIZES:
        x = drawn(rows, inner, device=device, dtype=dtype)
        w = drawn(columns, inner, device=device, dtype=dtype, scale=inner**-0.5)
        b = drawn(columns, device=device, dtype=dtype)
        r = drawn(rows, columns, device=device, dtype=dtype)
        wide = [t.detach().double().requires_grad_() for t in (x, w, b, r)]
        for count in (2, 3, 4):
            given, exact = [x, w, b, r][:count], wide[:count]
            pre = exact[0] @ exact[1].mT + (exact[2] if count > 2 else 0)
            wanted = ACTIVATIONS[activation](pre) + (exact[3] if count > 3 else 0)
            options = dict(zip(("bias", "residual"), given[2:], strict=False))
            got = linear(*given[:2], activation=activation, **options)
            held_against(got, given, wanted, exact)
        again = linear(x, w, b, activation, recompute=True)
        held_against(
            again, [x, w, b], ACTIVATIONS[activation](wide[0] @ wide[1].mT + wide[2]),
            wide[:3],
        )  # fmt: skip


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_layers(dtype: torch.dtype, recompute: bool, device: str) -> None:
    for rows, inner, hidden in [(130, 64, 256), (9, 24, 40), (3, 7, 5)]:
        x = drawn(2, rows, inner, device=device, dtype=dtype)
        a, c = (
            drawn(hidden, inner, device=device, dtype=dtype, scale=inner**-0.5)
            for _ in "ac"
        )
        d = drawn(inner, hidden, device=device, dtype=dtype, scale=hidden**-0.5)
        a_bias = drawn(hidden, device=device, dtype=dtype)
        d_bias = drawn(inner, device=device, dtype=dtype)
        given = [x, a, a_bias, d, d_bias]
        exact = [t.detach().double().requires_grad_() for t in given]
        wanted = F.gelu(exact[0] @ exact[1].mT + exact[2]) @ exact[3].mT + exact[4]
        held_against(mlp(*given, recompute=recompute), given, wanted, exact)
        given = [x, a, c, d]
        exact = [t.detach().double().requires_grad_() for t in given]
        wanted = F.silu(exact[0] @ exact[1].mT) * (exact[0] @ exact[2].mT)
        wanted = wanted @ exact[3].mT
        held_against(gated_mlp(*given, recompute=recompute), given, wanted, exact)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_convolution(
    activation: Any,
    dtype: torch.dtype,
    device: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # In fp32 the library convolves, which else rounds to TF32.
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    for images, high, wide, inner, outer, edge, stride, padding in IMAGES:
        x = drawn(images, inner, high, wide, device=device, dtype=dtype)
        w = drawn(
            outer, inner, edge, edge, device=device, dtype=dtype,
            scale=(inner * edge * edge) ** -0.5,
        )  # fmt: skip
        b = drawn(outer, device=device, dtype=dtype)
        given, exact = (
            [x, w, b],
            [t.detach().double().requires_grad_() for t in (x, w, b)],
        )
        pre = F.conv2d(exact[0], exact[1], exact[2], stride, padding)
        got = conv2d_bias_act(x, w, b, stride, padding, activation)
        held_against(got, given, ACTIVATIONS[activation](pre), exact)
        last = x.detach().contiguous(memory_format=torch.channels_last)
        again = conv2d_bias_act(last, w.detach(), None, (stride, stride), padding)
        due = F.conv2d(last.double(), w.detach().double(), None, stride, padding)
        near = 6 * torch.finfo(dtype).eps
        top = due.abs().max().item()
        torch.testing.assert_close(again.double(), due, rtol=near, atol=near * top)
        assert again.is_contiguous(memory_format=torch.channels_last)


def test_gradcheck(device: str) -> None:
    def of(*shape: int) -> torch.Tensor:
        return torch.randn(
            *shape, dtype=torch.float64, device=device, requires_grad=True
        )

    check = torch.autograd.gradcheck
    for activation in ACTIVATIONS:
        assert check(
            lambda *t, a=activation: linear(*t[:3], a, t[3]),
            (of(3, 4), of(5, 4), of(5), of(3, 5)),
        )
        assert check(
            lambda *t, a=activation: conv2d_bias_act(*t, 1, 1, a),
            (of(1, 2, 4, 4), of(3, 2, 3, 3), of(3)),
        )
    assert check(mlp, (of(3, 4), of(5, 4), of(5), of(2, 5), of(2)))
    assert check(gated_mlp, (of(3, 4), of(5, 4), of(5, 4), of(2, 5)))
    assert check(linear_gelu, (of(3, 4), of(5, 4)))


def test_layouts(device: str) -> None:
    x = torch.randn(3, 24, 16, device=device).mT  # columns in memory
    w = torch.randn(24, 40, device=device).mT
    for _ in range(3):
        torch.testing.assert_close(
            linear(x, w, activation="relu"), F.relu(F.linear(x, w)), rtol=1e-4,
            atol=1e-4,
        )  # fmt: skip


def test_modules(device: str) -> None:
    torch.manual_seed(5)
    x = torch.randn(10, 16, device=device)
    layer = FusedLinear(16, 24, activation="silu", device=device)
    plain = torch.nn.Linear(16, 24, device=device)
    plain.load_state_dict(layer.state_dict())
    torch.testing.assert_close(layer(x), F.silu(plain(x)), rtol=1e-4, atol=1e-5)
    assert "activation='silu'" in repr(layer)
    block = FusedMLP(16, 32, device=device)
    torch.testing.assert_close(
        block(x), block.down(F.gelu(block.up(x))), rtol=1e-4, atol=1e-5
    )
    gated = FusedMLP(16, 32, gated=True, device=device)
    assert gated.gate is not None
    torch.testing.assert_close(
        gated(x), gated.down(F.silu(gated.gate(x)) * gated.up(x)), rtol=1e-4, atol=1e-5
    )
    images = torch.randn(2, 8, 9, 9, device=device)
    conv = FusedConv2d(8, 16, 3, padding=1, activation="relu", device=device)
    simple = torch.nn.Conv2d(8, 16, 3, padding=1, device=device)
    simple.load_state_dict(conv.state_dict())
    torch.testing.assert_close(
        conv(images), F.relu(simple(images)), rtol=1e-3, atol=1e-4
    )


def test_compiled(device: str) -> None:
    torch._dynamo.reset()
    x = torch.randn(4, 8, 16, device=device, requires_grad=True)
    block = FusedMLP(16, 32, gated=True, device=device)
    images = torch.randn(2, 8, 6, 6, device=device, requires_grad=True)
    conv = FusedConv2d(8, 16, 3, activation="gelu", device=device)

    def both(x: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
        return block(x).sum() + conv(images).sum()

    backend = "inductor" if device == "cuda" else "aot_eager"
    compiled = torch.compile(both, fullgraph=True, backend=backend)
    got = torch.autograd.grad(compiled(x, images), (x, images))
    wanted = torch.autograd.grad(both(x, images), (x, images))
    torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-4)


def test_autocast(device: str) -> None:
    x, w = torch.randn(9, 16, device=device), torch.randn(24, 16, device=device)
    with torch.autocast(device, torch.bfloat16):
        assert linear(x, w).dtype == torch.bfloat16
        assert gated_mlp(x, w, w, w.mT.contiguous()).dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda x: linear([1.0], x), "x is list"),
        (lambda x: linear(x, x.half()), r"weight\.to\(x\)"),
        (lambda x: linear(x, x[:, :3]), r"wanted \(out features, 6\)"),
        (lambda x: linear(x, x, x), r"bias has shape \(4, 6\); wanted \(4,\)"),
        (lambda x: linear(x, x, None, None, x), r"wanted \(4, 4\)"),
        (lambda x: linear(x, x, None, "tanh"), "activation is 'tanh'"),
        (lambda x: linear_gelu(x, x, None, "erf"), "approximate is 'erf'"),
        (lambda x: mlp(x, x, None, x), r"second has shape \(4, 6\)"),
        (lambda x: gated_mlp(x, x, x[:2], x), r"up has shape \(2, 6\)"),
        (lambda x: conv2d_bias_act(x, x), "wanted .images"),
        (lambda x: conv2d_bias_act(x[None, None], x[None, None], None, 0), "stride"),
        (lambda x: conv2d_bias_act(x[None, None, 1:], x[None, None]), "does not fit"),
    ],
)
def test_what_does_not_fit_is_named(
    call: Callable[[torch.Tensor], Any], says: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=says):
        call(torch.randn(4, 6))


@pytest.mark.gpu
def test_a_repeated_call_holds_no_more_than_the_first() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no NVIDIA GPU on this machine")
    given = [
        torch.randn(*shape, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        for shape in ((8192, 512), (1024, 512), (1024, 512), (512, 1024))
    ]
    peaks = []
    for _ in range(4):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        torch.autograd.grad(gated_mlp(*given).sum(), given)
        peaks.append(torch.cuda.max_memory_allocated())
    # The second call is recorded, which holds all that it made.
    assert max(peaks[2:]) <= 1.05 * peaks[0], peaks


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_what_follows_a_product_elsewhere(activation: Any, device: str) -> None:
    name = "none" if activation is None else activation
    product, residual = torch.randn(2, 9, 12, device=device)
    bias = torch.randn(12, device=device)
    for b in (None, bias):
        for r in (None, residual):
            out, pre = finished(product, b, name, r)
            due = product if b is None else product + b
            torch.testing.assert_close(pre, due)
            due = ACTIVATIONS[activation](due) + (0 if r is None else r)
            torch.testing.assert_close(out, due)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_chains_where_torch_asks_no_placeholder(activation: Any, device: str) -> None:
    name = "none" if activation is None else activation
    _finish_texts.cache_clear()
    _gate_texts.cache_clear()
    pre, slope, up = torch.randn(3, 9, 12, dtype=torch.float64, device=device)
    bias = torch.randn(12, dtype=torch.float64, device=device)
    with torch._C.DisableTorchFunction():  # as within a call that wants a gradient
        whole = computed(_finish_texts(True, name, True), [pre, bias, up], 0)
        layer = through_layer(slope, pre, name)
        gate = through_gate(slope, pre, up, name)
    sums = pre + bias
    torch.testing.assert_close(whole, [sums, ACTIVATIONS[activation](sums) + up])
    exact, factor = pre.clone().requires_grad_(), up.clone().requires_grad_()
    hidden = ACTIVATIONS[activation](exact)
    (due,) = torch.autograd.grad(hidden, exact, slope, retain_graph=True)
    torch.testing.assert_close(layer, (hidden.detach(), due))
    gated = hidden * factor
    dues = torch.autograd.grad(gated, (exact, factor), slope)
    torch.testing.assert_close(gate, (gated.detach(), *dues))
