"""Mixture of experts: the routing, the permutation, ragged products, the layer."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import kernelwright as kw
from solutions.moe import (
    MoE,
    grouped_gemm,
    grouped_triton,
    load_balance_loss,
    moe_mlp,
    on_cpu,
    permutation,
    permute,
    prefix_sum,
    route,
    routing,
    unpermute,
)
from solutions.moe.grouped import (
    TALL,
    Segments,
    listed,
    multiplied,
    weights_gradient,
)

GPU = pytest.param("cuda", marks=pytest.mark.gpu)
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.fixture(params=[GPU, "cpu"])
def device(request: pytest.FixtureRequest) -> str:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no NVIDIA GPU on this machine")
    torch.manual_seed(14)
    return str(request.param)


def near(got: torch.Tensor, wanted: torch.Tensor, factor: float = 4) -> None:
    """Compare with what float64 says, by got's rounding step and wanted's size."""
    assert got.shape == wanted.shape
    if wanted.numel():
        size = wanted.abs().max().item() + 1e-30
        step = torch.finfo(got.dtype).eps
        worst = (got.double().cpu() - wanted.double().cpu()).abs().max().item()
        assert worst <= factor * step * size, (worst, size, step)


# --- Sums up to each number


@pytest.mark.parametrize("n", [0, 1, 5, 4096, 4097, 33_000, 150_001])
@pytest.mark.parametrize("exclusive", [False, True])
def test_prefix_sums(device: str, n: int, exclusive: bool) -> None:
    x = torch.randint(-1000, 1000, (n + 1,), dtype=torch.int32, device=device)
    for one in (x[:n], x[1:]):  # the second one begins between 16 bytes
        wanted = one.cumsum(0) - (one if exclusive else 0)
        assert torch.equal(prefix_sum(one, exclusive), wanted.to(torch.int32))


def test_prefix_sums_wrap(device: str) -> None:
    x = torch.full((5000,), 2**30, dtype=torch.int32, device=device)
    wanted = x.long().cumsum(0).to(torch.int32)
    assert torch.equal(prefix_sum(x), wanted)


@pytest.mark.gpu
def test_long_prefix_sums() -> None:
    for n in (2**22 + 7, 2**27):
        x = torch.randint(-9, 9, (n,), dtype=torch.int32, device="cuda")
        for _ in range(3):
            assert torch.equal(prefix_sum(x), x.cumsum(0).to(torch.int32))


# --- The routing


@pytest.mark.parametrize("of_chosen", [True, False])
@pytest.mark.parametrize("experts, k", [(5, 2), (64, 8), (32, 32), (33, 1), (300, 40)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_kernel_routes_as_torch_does(
    device: str, dtype: torch.dtype, experts: int, k: int, of_chosen: bool
) -> None:
    logits = torch.randn(21, experts, device=device).to(dtype)
    logits[3] = 1.0  # all equal: the lower experts
    logits[4, 1], logits[5, : experts - k] = float("nan"), -float("inf")
    logits[6, 0], logits[7] = -float("inf"), -float("inf")
    weights, chosen = routing.routed(logits, k, of_chosen)
    wanted_weights, wanted = on_cpu.routed(logits.cpu(), k, of_chosen)
    assert torch.equal(chosen.cpu(), wanted)
    torch.testing.assert_close(
        weights.cpu(), wanted_weights, equal_nan=True, rtol=1e-5, atol=1e-7
    )
    rows = [i for i in range(21) if i not in (4, 7)]
    slopes = torch.randn_like(weights)
    got = routing.routed_backward(logits, weights, chosen, slopes, of_chosen)
    back = on_cpu.routed_backward(
        logits.cpu(), weights.cpu(), wanted, slopes.cpu(), of_chosen
    )
    near(got[rows], back[rows])


@pytest.mark.parametrize("renormalize", [True, False])
@pytest.mark.parametrize("experts", [6, 1500])  # more than a warp holds
def test_gradients_of_the_routing(device: str, experts: int, renormalize: bool) -> None:
    logits = torch.randn(3, experts, dtype=torch.float64, device=device)
    logits[:, 10:] -= 8.0
    logits.requires_grad_()
    w, c = route(logits, 3, renormalize=renormalize)
    p = logits.softmax(-1).gather(1, c.long())
    wanted = p / p.sum(-1, keepdim=True) if renormalize else p
    near(w, wanted.detach())
    g = torch.randn_like(w)
    near(
        torch.autograd.grad(w, logits, g)[0], torch.autograd.grad(wanted, logits, g)[0]
    )
    if experts < 10:
        assert torch.autograd.gradcheck(
            lambda x: route(x, 3, renormalize=renormalize)[0], (logits,)
        )


def test_balance() -> None:
    logits = torch.randn(50, 8, dtype=torch.float64, requires_grad=True)
    chosen = torch.arange(100).view(50, 2) % 8
    # Alike in probability: 1, whoever is chosen.
    assert load_balance_loss(torch.zeros(50, 8), chosen).item() == pytest.approx(1.0)
    one = torch.zeros(50, 2, dtype=torch.int32)
    sharp = torch.full((50, 8), -50.0)
    sharp[:, 0] = 50.0
    assert load_balance_loss(sharp, one).item() == pytest.approx(8.0)
    assert torch.autograd.gradcheck(lambda x: load_balance_loss(x, chosen), (logits,))
    assert load_balance_loss(torch.zeros(0, 8), torch.zeros(0, 2).int()).item() == 0


# --- The permutation: what the kernels do is what torch's operations do


@pytest.mark.parametrize(
    "tokens, k, experts",
    [(1, 1, 1), (50, 2, 5), (700, 4, 9), (300, 1, 40), (64, 3, 3), (0, 2, 4)],
)
@pytest.mark.parametrize("round", [1, 16, 128])
def test_the_kernels_place_as_torch_does(
    device: str, tokens: int, k: int, experts: int, round: int
) -> None:
    keys = torch.rand(tokens, experts, device=device)
    chosen = keys.argsort(dim=1)[:, :k].to(torch.int32).contiguous()
    chosen[: tokens // 3] = chosen[:1]  # a third to the same experts
    if tokens > 4:
        chosen[3, 0], chosen[4, 0] = -1, experts  # no expert's numbers
    for capacity in (10**9, max(1, tokens * k // experts), 0):
        got = permutation.placed(chosen, experts, round, capacity)
        wanted = on_cpu.placed(chosen.cpu(), experts, round, capacity)
        for one, other in zip(got, wanted, strict=True):
            assert torch.equal(one.cpu(), other)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", [48, 7])  # whole packs, and none
def test_the_kernels_move_as_torch_does(
    device: str, dtype: torch.dtype, columns: int
) -> None:
    tokens, k, experts, round = 40, 3, 6, 16
    chosen = torch.rand(tokens, experts).argsort(dim=1)[:, :k].to(torch.int32)
    rows, begins, ends = on_cpu.placed(chosen, experts, round, 18)
    height = int(ends.max()) + round + 5
    wide = torch.promote_types(dtype, torch.float32)
    x = torch.randn(tokens, columns).to(dtype)
    y = torch.randn(height, columns).to(dtype)
    both = torch.randn(height, 2 * columns).to(dtype)
    weights = torch.rand(tokens, k, dtype=wide)

    def compare(name: str, *arguments: Any, **options: Any) -> None:
        there = [a.to(device) if isinstance(a, torch.Tensor) else a for a in arguments]
        got = getattr(permutation, name)(*there, **options)
        wanted = getattr(on_cpu, name)(*arguments, **options)
        pairs = (
            zip(got, wanted, strict=True) if isinstance(got, tuple) else [(got, wanted)]
        )
        # What no kernel writes, nothing reads.
        used = torch.zeros(height, dtype=torch.bool)
        for b, e in zip(begins.tolist(), ends.tolist(), strict=True):
            used[b : b + (e - b + round - 1) // round * round] = True
        for one, other in pairs:
            one = one.cpu()
            if one.shape[0] == height and not options.get("whole"):
                one, other = one[used], other[used]
            near(one, other)

    where = (rows, weights, begins, ends, round)
    compare("sent", x, *where, height, whole=True)
    compare("sent", x, rows, None, begins, ends, round, height, whole=False)
    compare("gathered", y, rows, weights)
    compare("gathered", y, rows, None)
    compare("weighed", x, y, rows)
    compare("swiglu_backward", both, y, *where)
    got, wanted = permutation.swiglu(both.to(device)), on_cpu.swiglu(both)
    near(got, wanted)


def test_there_and_back(device: str) -> None:
    x = torch.randn(30, 12, dtype=torch.float64, device=device, requires_grad=True)
    chosen = torch.rand(30, 5, device=device).argsort(1)[:, :2]
    moved = permute(x, chosen, 5)
    assert moved.offsets.tolist()[-1] == 60
    for e, end in enumerate(moved.offsets.tolist()):
        begin = 0 if e == 0 else moved.offsets.tolist()[e - 1]
        wanted = x[(chosen == e).any(1)]
        assert torch.equal(moved.x[begin:end], wanted)
    weights = torch.rand(30, 2, dtype=torch.float64, device=device, requires_grad=True)

    def both_ways(x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        moved = permute(x, chosen, 5, capacity=10)
        return unpermute(moved.x, moved.rows, weights)

    assert torch.autograd.gradcheck(both_ways, (x, weights))
    out = unpermute(moved.x, moved.rows)
    near(out, 2 * x.detach())


# --- Ragged products


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns_last", [True, False])
@pytest.mark.parametrize(
    "inner, columns, ends",
    [
        (64, 48, [0, 5, 5, 200, 333]), (128, 200, [130, 131, 400]), (20, 9, [7, 7, 20]),
        (64, 16, [0, 0, 0]), (192, 264, [300]), (64, 520, [64, 192, 448, 449]),
    ],
)  # fmt: skip
def test_ragged_products(
    device: str, dtype: torch.dtype, columns_last: bool, inner: int, columns: int,
    ends: list[int],
) -> None:  # fmt: skip
    height, experts = ends[-1] + 30, len(ends)
    x = torch.randn(height, inner, device=device).to(dtype)
    shape = (inner, columns) if columns_last else (columns, inner)
    weights = torch.randn(experts, *shape, device=device).to(dtype)
    weights = weights if columns_last else weights.mT
    x[ends[-1] :] = float("nan")  # no expert's rows
    for one in (x, weights):
        one.requires_grad_()
    got = grouped_gemm(x, weights, torch.tensor(ends, device=device))
    wanted = torch.zeros(height, columns, dtype=torch.float64)
    a, b = (one.detach().double().cpu() for one in (x, weights))
    slope = torch.randn(height, columns, device=device).to(dtype)
    g = slope.double().cpu()
    of_x, of_weights = torch.zeros_like(a), torch.zeros_like(b)
    begin = 0
    for e, end in enumerate(ends):
        rows = slice(begin, end)
        wanted[rows] = a[rows] @ b[e]
        of_x[rows] = g[rows] @ b[e].T
        of_weights[e] = a[rows].T @ g[rows]
        begin = end
    near(got.detach(), wanted, 16)
    found = torch.autograd.grad(got, (x, weights), slope)
    near(found[0], of_x, 16)
    near(found[1], of_weights, 16)


@pytest.mark.parametrize("round", [1, 64])
@pytest.mark.parametrize("others_too", [False, True])
def test_the_list_of_tiles(device: str, round: int, others_too: bool) -> None:
    rows = [0, 5, 128, 129, 0, 300, 1]
    begins, ends, at = [], [], 0
    for one in rows:
        begins.append(at)
        ends.append(at + one)
        at += -(-one // round) * round
    height = at + 200
    segments = Segments(*(torch.tensor(b, dtype=torch.int32, device=device)
                          for b in (begins, ends)), round)  # fmt: skip
    wanted = []
    for e, begin in enumerate(begins):
        end = begin + -(-rows[e] // round) * round
        wanted += [[e, first, end, 0] for first in range(begin, end, TALL)]
    if others_too:
        wanted += [[-1, first, height, 0] for first in range(at, height, TALL)]
    tiles = listed(segments, height, others_too).tolist()
    assert tiles[0][0] == len(wanted)
    assert tiles[1 : 1 + len(wanted)] == wanted


@pytest.mark.parametrize("ends", [[3, 3, 140, 150], [0, 0], [-5, 7, 2, 900]])
def test_offsets_are_kept_within_the_rows(device: str, ends: list[int]) -> None:
    given = torch.tensor(ends, dtype=torch.int32, device=device)
    begins = F.pad(given[:-1], (1, 0))
    count, *tiles = listed(Segments(begins, given, 1), 150, True).tolist()
    for _, first, end, _ in tiles[: count[0]]:
        assert 0 <= first < end <= 150


@pytest.mark.skipif(kw.cuda.backend() == "gpu", reason="by Triton's interpreter")
@pytest.mark.parametrize("columns_last", [True, False])
def test_the_products_in_triton(columns_last: bool) -> None:
    torch.manual_seed(3)
    ends = torch.tensor([5, 5, 140], dtype=torch.int32)
    segments = Segments(F.pad(ends[:-1], (1, 0)), ends, 1)
    x, grad = torch.randn(150, 40), torch.randn(150, 70)
    weights = torch.randn(3, 40, 70) if columns_last else torch.randn(3, 70, 40).mT
    tiles = listed(segments, 150, others_too=True)
    near(
        grouped_triton.grouped(x, weights, tiles),
        multiplied(x.double(), weights.double(), segments, None),
        16,
    )
    near(
        grouped_triton.weights_gradient(x, grad, segments.begins, segments.ends),
        weights_gradient(x.double(), grad.double(), segments),
        16,
    )


# --- The layer


def by_a_loop(
    layer: MoE, x: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    """Compute the layer as its formula stands, expert by expert."""
    out = torch.zeros_like(x)
    for e in range(layer.experts):
        token, slot = (chosen == e).nonzero(as_tuple=True)
        gate, up = (x[token] @ layer.gate_up[e].T).chunk(2, dim=-1)
        y = (F.silu(gate) * up) @ layer.down[e].T
        out = out.index_add(0, token, y * weights[token, slot, None])
    return out


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "tokens, d_model, d_ff, experts, k",
    [(37, 64, 128, 5, 2), (200, 128, 64, 8, 3), (9, 24, 40, 4, 1), (50, 64, 72, 6, 6),
     (300, 192, 320, 3, 2), (0, 16, 16, 4, 2), (5, 7, 9, 3, 2)],
)  # fmt: skip
def test_the_layer(
    device: str, dtype: torch.dtype, tokens: int, d_model: int, d_ff: int,
    experts: int, k: int,
) -> None:  # fmt: skip
    layer = MoE(d_model, d_ff, experts, k, device=device, dtype=dtype)
    x = torch.randn(tokens, d_model, device=device).to(dtype)
    compare_with_a_loop(layer, x)


@pytest.mark.parametrize("case", ["all to one", "none to most", "one token"])
def test_uneven_loads(device: str, case: str) -> None:
    layer = MoE(64, 96, 16, 1, device=device, dtype=torch.bfloat16)
    x = torch.randn(1 if case == "one token" else 300, 64, device=device).bfloat16()
    with torch.no_grad():
        x[:, 0] = 4.0
        layer.router[:, 0] = -4.0
        layer.router[{"all to one": [5], "none to most": [0, 15]}.get(case, [3]), 0] = 9
    compare_with_a_loop(layer, x)


def compare_with_a_loop(layer: MoE, x: torch.Tensor) -> None:
    """Compare the layer and its gradients with float64, of the same choice."""
    x.requires_grad_()
    out = layer(x)
    logits = F.linear(x, layer.router)
    chosen = route(logits, layer.k)[1]
    slope = torch.randn_like(out)
    wanted_by = MoE(
        layer.d_model, layer.d_ff, layer.experts, layer.k, dtype=torch.float64
    )
    wanted_by.load_state_dict({n: p.double() for n, p in layer.state_dict().items()})
    exact = x.detach().double().cpu().requires_grad_()
    chosen = chosen.cpu().long()
    scores = (exact @ wanted_by.router.T).gather(1, chosen).softmax(-1)
    wanted = by_a_loop(wanted_by, exact, chosen, scores)
    near(out.detach(), wanted.detach(), 16)
    got = torch.autograd.grad(out, [x, *layer.parameters()], slope)
    back = torch.autograd.grad(
        wanted, [exact, *wanted_by.parameters()], slope.double().cpu()
    )
    for one, other in zip(got, back, strict=True):
        near(one, other, 32)


def test_gradients_by_differences(device: str) -> None:
    layer = MoE(6, 10, 4, 2, device=device, dtype=torch.float64)
    x = torch.randn(11, 6, dtype=torch.float64, device=device, requires_grad=True)
    chosen = route(F.linear(x, layer.router), 2)[1]
    weights = torch.rand(11, 2, dtype=torch.float64, device=device, requires_grad=True)
    given = (x, weights, chosen, layer.gate_up, layer.down)
    assert torch.autograd.gradcheck(moe_mlp, given)
    assert torch.autograd.gradcheck(
        lambda *a: moe_mlp(a[0], a[1], chosen, a[2], a[3], 4),
        (x, weights, layer.gate_up, layer.down),
    )


def test_capacity(device: str) -> None:
    layer = MoE(8, 16, 4, 1, capacity_factor=1.0, device=device, dtype=torch.float64)
    x = torch.randn(20, 8, dtype=torch.float64, device=device)
    with torch.no_grad():
        layer.router.zero_()  # all equal: all to expert 0, of which 5 are taken
        out = layer(x)
        layer.capacity_factor = None
        whole = layer(x)
    # A product of another number of rows may add in another order.
    torch.testing.assert_close(out[:5], whole[:5], rtol=1e-12, atol=1e-12)
    assert not out[5:].any() and whole[5:].any()


def test_shapes_and_devices(device: str) -> None:
    layer = MoE(16, 8, 4, 2, device=device)
    x = torch.randn(2, 3, 16, device=device)
    out, balance = layer.with_balance(x)
    assert out.shape == x.shape and balance.dim() == 0
    torch.testing.assert_close(out[1, 2], layer(x[1, 2]), rtol=1e-5, atol=1e-6)
    assert layer(x[:0]).shape == (0, 3, 16)
    assert "experts=4" in repr(layer)


# --- What does not fit, by name

X = torch.zeros(4, 8)
CHOSEN = torch.zeros(4, 2, dtype=torch.int32)


@pytest.mark.parametrize(
    "call, error, text",
    [
        (lambda: route(X.int(), 2), TypeError, "logits is torch.int32"),
        (lambda: route(X[0], 2), ValueError, r"logits has shape \(8,\)"),
        (lambda: route(X, 9), ValueError, "k is 9; wanted 1 to 8"),
        (lambda: permute(X, CHOSEN[:3], 2), ValueError, r"wanted \(4, k\)"),
        (lambda: permute(X, CHOSEN.float(), 2), TypeError, "chosen is torch.float32"),
        (lambda: permute(X, CHOSEN, 0), ValueError, "experts is 0"),
        (lambda: permute(X, CHOSEN, 2, -1), ValueError, "capacity is -1"),
        (lambda: unpermute(X, CHOSEN, X), ValueError, r"weights are \(4, 8\)"),
        (lambda: grouped_gemm(X, X, CHOSEN[0]), ValueError, "weights are"),
        (lambda: grouped_gemm(X, X.double()[None], CHOSEN[0]), TypeError, "float64"),
        (
            lambda: grouped_gemm(X, torch.zeros(3, 8, 2), CHOSEN[0]),
            ValueError,
            r"wanted int32, \(3,\)",
        ),
        (lambda: prefix_sum(X), TypeError, "prefix_sum: x is torch.float32"),
        (
            lambda: moe_mlp(X, CHOSEN, CHOSEN, X[None], X[None]),
            ValueError,
            r"gate_up is .* wanted torch.float32, \(1, 16, 8\)",
        ),
        (lambda: MoE(4, 4, 2, 3), ValueError, "k is 3; wanted 1 to 2"),
        (lambda: MoE(4, 0, 2, 1), ValueError, "d_ff is 0"),
        (lambda: MoE(4, 4, 2, 1)(X), ValueError, r"wanted \(\.\.\., 4\)"),
    ],
)
def test_what_does_not_fit(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()
