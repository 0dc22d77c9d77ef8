"""The last rungs of chapter 11: a row's norm, attention's weights, and the fuser."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import kernelwright as kw
from kernelwright.expression import FUNCTIONS, Node, in_order, traced
from solutions.fusion.attention_score_triton import attention_score
from solutions.fusion.fuser import SLOPES, SPELLED, fuse, kernel, slopes, statements
from solutions.fusion.layer_norm_relu_fused import layer_norm_relu_fused

# These launch by themselves, where this machine's kernels run.
ON_GPU = kw.cuda.backend() == "gpu"
DEVICES = [pytest.param("cuda", marks=pytest.mark.gpu) if ON_GPU else "cpu"]
CHAINS: list[Callable[..., Any]] = [
    lambda x: x,
    lambda x: x * x * x - 2 * x,
    lambda x: 0.5 * x * (1 + (0.7071 * x).erf()),
    lambda x: x * x.sigmoid(),
    lambda x, y: (x * y).tanh() + (x * y).tanh() * y,
    lambda x, y: x / (y * y + 0.5) - 1 / (1 + x.exp()),
    lambda x, y: -(x - y).relu() * 3 + y.relu(),
    lambda x, y: (x > y) * x + (x * y > 0.25) * (y - x),
    lambda x, y: (x * x + y * y + 1).log() - (x * x + 2).sqrt(),
    lambda x, y: 3 - x,
    lambda x, y, z: (x * y).sigmoid() * z.tanh() / (1 + z * z),
    lambda x, y, z: ((x - y) * (y - z) * (z - x)).erf().exp() - (x - y),
]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    torch.manual_seed(11)
    return str(request.param)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("columns", [1, 2, 33, 255, 1000, 8192])
def test_layer_norm_relu(columns: int, dtype: torch.dtype, device: str) -> None:
    x = (3 + 2 * torch.randn(4, columns, device=device)).to(dtype)
    x[1] = x[1] + 100
    x[2, columns // 2] = torch.nan
    weight, bias = torch.randn(2, columns, device=device).to(dtype)
    out = layer_norm_relu_fused(x, weight, bias, 1e-3)
    wide = (x.double(), (columns,), weight.double(), bias.double(), 1e-3)
    right = torch.relu(F.layer_norm(*wide))
    # Of one column nothing is left of x, in double as in float.
    size = 100 * weight.double().abs() + bias.double().abs() + right.nan_to_num(0.0)
    eps = torch.finfo(torch.float32).eps
    allowed = 2 * eps * columns**0.5 * size + torch.finfo(dtype).eps * right.abs()
    off = (out.double() - right).abs()
    assert bool((off <= allowed).logical_or(right.isnan()).all())
    assert out.dtype == dtype and bool(out[2].isnan().all())
    assert not out[[0, 1, 3]].isnan().any()


@pytest.mark.parametrize("d", [16, 32, 64, 128])
@pytest.mark.parametrize(("n", "m"), [(1, 1), (64, 64), (65, 63), (3, 200), (130, 129)])
def test_attention_score(n: int, m: int, d: int, device: str) -> None:
    q, k = (torch.randn(rows, d, device=device).half() for rows in (n, m))
    out = attention_score(q, k, 0.3)
    right = torch.softmax(0.3 * (q.double() @ k.double().T), 1)
    torch.testing.assert_close(out.double(), right, rtol=1e-3, atol=1e-7)
    assert out.shape == (n, m) and out.dtype == torch.float16


def test_scores_whose_maximum_moves(device: str) -> None:
    q = torch.ones(3, 16, device=device).half()
    k = torch.linspace(-30, 30, 300, device=device)[:, None].expand(300, 16).half()
    for keys in (k, k.flip(0)):
        out = attention_score(q, keys.contiguous(), 2.0)
        right = torch.softmax(2.0 * (q.double() @ keys.double().T), 1)
        torch.testing.assert_close(out.double(), right, rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("place", range(len(CHAINS)))
def test_a_chain_and_its_gradients(place: int, device: str) -> None:
    chain = CHAINS[place]
    _, inputs = traced(chain)
    fused = fuse(chain)
    for n in (0, 1, 6, 1027):
        xs = [torch.randn(n, device=device, requires_grad=True) for _ in range(inputs)]
        grad = torch.randn(n, device=device)
        wide = [x.detach().double().requires_grad_() for x in xs]
        out, right = fused(*xs), chain(*wide)
        torch.testing.assert_close(out.double(), right, rtol=2e-5, atol=2e-5)
        got = torch.autograd.grad(out, xs, grad)
        wanted = torch.autograd.grad(right, wide, grad.double(), materialize_grads=True)
        for one, other in zip(got, wanted, strict=True):
            torch.testing.assert_close(one.double(), other, rtol=2e-5, atol=2e-5)


def test_a_sum_and_part_of_a_tensor(device: str) -> None:
    fused = fuse(lambda x, y: x * y.exp())
    whole = torch.randn(2, 14, device=device)
    # Neither begins at a multiple of 16 bytes, and the one is not contiguous.
    x, y = whole[:, 1:8].detach().requires_grad_(), whole[1, 3:10].expand(2, 7)
    fused(x, y).sum().backward()
    torch.testing.assert_close(x.grad, y.exp())


_OPERATORS = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul,
    "div": operator.truediv, "neg": operator.neg, "gt": operator.gt,
    **{name: getattr(torch, name) for name in FUNCTIONS},
}  # fmt: skip


def value(root: Node, inputs: list[torch.Tensor]) -> torch.Tensor:
    """Compute an expression in the inputs' own dtype."""
    found: dict[Node, Any] = {}
    for node in in_order(root):
        if node.op == "input":
            assert node.value is not None
            found[node] = inputs[int(node.value)]
        elif node.op == "constant":
            found[node] = torch.full_like(inputs[0], float(node.value or 0.0))
        else:
            found[node] = _OPERATORS[node.op](*(found[a] for a in node.arguments))
    return found[root].to(inputs[0].dtype)


@pytest.mark.parametrize("place", range(len(CHAINS)))
def test_slopes_against_differences(place: int) -> None:
    torch.manual_seed(place)
    root, inputs = traced(CHAINS[place])
    xs = [torch.randn(200, dtype=torch.float64) for _ in range(inputs)]
    grad, step = torch.randn(200, dtype=torch.float64), 1e-6
    for k, slope in enumerate(slopes(root, inputs)):
        up, down = ([*xs[:k], xs[k] + s, *xs[k + 1 :]] for s in (step, -step))
        rise = (value(root, up) - value(root, down)) / (2 * step)
        got = value(slope, [*xs, grad])
        torch.testing.assert_close(got, grad * rise, rtol=1e-6, atol=1e-7)


def test_every_operation_is_spelled_and_has_a_slope() -> None:
    assert SPELLED.keys() == SLOPES.keys() == _OPERATORS.keys()


def test_each_node_is_computed_once() -> None:
    def deep(x: Any) -> Any:
        for _ in range(40):
            x = x + (x * 0.5).tanh()
        return x

    root, _ = traced(deep)
    lines = statements([root, *slopes(root, 1)])
    assert sum("tanhf" in line for line in lines) == 40
    assert len(lines) == len(set(lines)) < 40 * 10


def test_a_fused_chain_moves_each_array_once() -> None:
    root, inputs = traced(lambda x, y: (x * y).tanh() + x)
    text = kernel("forward", inputs, [root])
    module = kw.cuda.compile(text, backend="emulator")
    x, y, out = torch.randn(2048), torch.randn(2048), torch.empty(2048)
    report = module["forward"].trace.options(blocks="all")[2, 256](x, y, out, 2048)
    report.assert_clean()
    moved = {
        op: sum(32 * a.sectors for a in report.lines if a.op == op)
        for op in ("load", "store")
    }
    assert moved == {"load": 2 * 4 * 2048, "store": 4 * 2048}
