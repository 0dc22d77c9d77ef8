"""Every public function: repeated from a recording, and as an operator of torch's."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from benchmarks._host_calls import Call, calls
from benchmarks._model import Model
from kernelwright.cuda.watch import unwrapped
from kernelwright.operators import Operator, fingerprint
from solutions.flash_attention import flash_attention
from solutions.fusion.functions import _run
from solutions.layernorm import layer_norm, rms_norm
from solutions.matmul import matmul
from solutions.reduction import mean_abs, sum_all
from solutions.softmax import _softmax as softmax_operator
from solutions.transpose import transpose
from solutions.vector_add import vector_add

WITHOUT_GRADIENT = {"decode_attention"}


@pytest.fixture(autouse=True)
def recorded_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprint, "everywhere", True)


@pytest.fixture(params=[pytest.param("cuda", marks=pytest.mark.gpu), "cpu"])
def each(request: pytest.FixtureRequest) -> Iterator[Call]:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no NVIDIA GPU on this machine")
    torch.manual_seed(1)
    return calls(request.param)


def close(call: Call, got: object, wanted: object) -> None:
    torch.testing.assert_close(
        got, wanted, rtol=call.tolerance, atol=call.tolerance,
        msg=lambda why: f"{call.name}: {why}",
    )  # fmt: skip


def leaves(call: Call) -> tuple[torch.Tensor, ...]:
    return tuple(t.detach().clone().requires_grad_() for t in call.operands)


def gradients(
    function: Callable[..., torch.Tensor], call: Call
) -> tuple[torch.Tensor, ...]:
    operands = leaves(call)
    out = function(*operands)
    out.backward(torch.linspace(-1, 1, out.numel()).to(out).view(out.shape))
    return tuple(t.grad for t in operands)


def test_repeated_calls_are_right(each: Iterator[Call]) -> None:
    for call in each:
        for _ in range(3):
            operands = tuple(torch.randn_like(t) for t in call.operands)
            close(call, call.ours(*operands), call.peer(*operands))


def test_repeated_gradients_are_right(each: Iterator[Call]) -> None:
    for call in each:
        if call.name in WITHOUT_GRADIENT:
            continue
        wanted = gradients(call.peer, call)
        for _ in range(3):
            close(call, gradients(call.ours, call), wanted)


def test_compiled_without_a_break(each: Iterator[Call]) -> None:
    for call in each:
        torch._dynamo.reset()
        backend = "inductor" if call.operands[0].is_cuda else "aot_eager"
        compiled = torch.compile(call.ours, fullgraph=True, backend=backend)
        with torch.no_grad():
            close(call, compiled(*call.operands), call.peer(*call.operands))
        if call.name not in WITHOUT_GRADIENT:
            close(call, gradients(compiled, call), gradients(call.peer, call))


def test_transforms_of_torch(each: Iterator[Call]) -> None:
    for call in each:
        if call.name in WITHOUT_GRADIENT:
            continue
        places = tuple(range(len(call.operands)))

        def total(*operands: torch.Tensor, function=call.ours) -> torch.Tensor:
            return function(*operands).float().square().sum()

        got = torch.func.grad(total, places)(*call.operands)

        def peer(*operands: torch.Tensor, function=call.peer) -> torch.Tensor:
            return function(*operands).float().square().sum()

        wanted = torch.func.grad(peer, places)(*call.operands)
        for one, other in zip(got, wanted, strict=True):
            near = 5e-2 * max(1.0, float(other.abs().max()) / 10)
            torch.testing.assert_close(one, other, rtol=5e-2, atol=near)


def test_operators_are_as_torch_wants_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every operator that a call comes through, on the arguments that it is given."""
    seen: dict[str, tuple[Operator, tuple[Any, ...]]] = {}
    plain = Operator.__call__

    def noted(self: Operator, *arguments: Any) -> Any:
        seen.setdefault(self.name, (self, tuple(map(unwrapped, arguments))))
        return plain(self, *arguments)

    monkeypatch.setattr(Operator, "__call__", noted)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for call in calls(device):
        if call.name not in WITHOUT_GRADIENT:
            gradients(call.ours, call)
        call.ours(*call.operands)
    # On the CPU softmax and attention are torch's own.
    x = torch.randn(4, 6, device=device, requires_grad=True)
    softmax_operator(x, 1, torch.float32).sum().backward()
    q = torch.randn(1, 1, 16, 64, device=device, requires_grad=True)
    (0 * attention(q, q, q)).sum().backward()
    monkeypatch.undo()
    assert {"softmax_backward", "attention_backward", "norm_backward"} <= set(seen)
    for name, (operator, arguments) in seen.items():
        given = tuple(
            t.detach().requires_grad_(t.requires_grad and operator.differentiable)
            if isinstance(t, torch.Tensor)
            else t
            for t in arguments
        )
        found = torch.library.opcheck(operator.overload, given, raise_exception=False)
        assert all(one == "SUCCESS" for one in found.values()), (name, found)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return flash_attention(q, k, v, kernel="triton")


def test_calls_are_recorded() -> None:
    """Or else they cost what they always did."""
    pair = torch.randn(2, 9, 9).requires_grad_()
    x, y = (t.detach().requires_grad_() for t in pair)
    weight = torch.ones(9, requires_grad=True)
    given: list[tuple[Any, tuple[Any, ...]]] = [
        (vector_add, (x, y)),
        (transpose, (x,)),
        (sum_all, (x,)),
        (mean_abs, (x,)),
        (matmul, (x, y)),
        (layer_norm, (x, (9,), weight, weight)),
        (rms_norm, (x, (9,), weight)),
        (_run, ("chain", "mul(x0, 0.5)", x)),
    ]
    for function, arguments in given:
        for wanted, mode in (("launch(", torch.no_grad), ("apply(", torch.enable_grad)):
            with mode():
                function(*arguments)
                function(*arguments)
            last = list(function.recordings.values())[-1]
            assert wanted in last.text, function.__name__


@pytest.mark.parametrize("kernel", [None, "plain"])
def test_dropout_by_plain_torch(kernel: Any) -> None:
    q = torch.randn(1, 2, 8, 16, requires_grad=True)
    for _ in range(3):
        flash_attention(q, q, q, dropout_p=0.5, seed=1, kernel=kernel).sum().backward()


def test_out_where_torch_traces() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    def add(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        return vector_add(x, x, out=out)

    graph = make_fx(add)(torch.randn(2, 8), torch.randn(2, 8))
    out = torch.zeros(2, 8)
    graph(torch.ones(2, 8), out)
    assert out[0, 0].item() == 2.0
    with torch._subclasses.FakeTensorMode():
        x, out = torch.empty(4, 8), torch.empty(8, 4)
        assert transpose(x, out=out).shape == (8, 4)


def test_lazy_views_and_forward_gradients() -> None:
    x = torch.randn(4, 4)
    torch.testing.assert_close(vector_add(x._neg_view(), x), torch.zeros(4, 4))
    z = torch.randn(4, 6, dtype=torch.complex64)
    assert torch.equal(transpose(z.conj()), z.mH)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones(4, 4))
        with pytest.raises((RuntimeError, NotImplementedError), match="jvp"):
            vector_add(dual, x)


def test_empty_products_and_odd_weights() -> None:
    assert matmul(torch.ones(2, 3, 0), torch.ones(0, 4)).shape == (2, 3, 4)
    x = torch.randn(2, 4)
    for weight in (torch.randn(8)[::2], torch.ones(1).expand(4)):
        wanted = torch.nn.functional.layer_norm(x, (4,), weight)
        torch.testing.assert_close(layer_norm(x, 4, weight), wanted)


@pytest.mark.parametrize("device", [pytest.param("cuda", marks=pytest.mark.gpu), "cpu"])
def test_dropout_is_drawn_in_a_compiled_program(device: str) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no NVIDIA GPU on this machine")
    torch._dynamo.reset()

    def attend(q: torch.Tensor) -> torch.Tensor:
        return flash_attention(q, q, q, dropout_p=0.5, kernel="triton")

    backend = "inductor" if device == "cuda" else "aot_eager"
    compiled = torch.compile(attend, fullgraph=True, backend=backend)
    q = torch.randn(1, 1, 16, 64, device=device, requires_grad=True)
    one, other = compiled(q), compiled(q)
    assert not torch.equal(one, other)
    # The way back drops what the way there dropped: along q, numbers agree.
    torch.manual_seed(5)
    out = compiled(q)
    (slope,) = torch.autograd.grad(out.square().sum(), q)
    step = 1e-3 * torch.sign(slope)
    sums = []
    for moved in (q.detach() + step, q.detach() - step):
        torch.manual_seed(5)
        sums.append(compiled(moved.requires_grad_()).square().sum().item())
    expected = (slope * step).sum().item() * 2
    assert abs(sums[0] - sums[1] - expected) < 0.05 * abs(expected)


@pytest.mark.parametrize("name", ["vector_add", "softmax", "sum_all"])
@pytest.mark.parametrize("device", [pytest.param("cuda", marks=pytest.mark.gpu), "cpu"])
def test_eight_threads_at_once(name: str, device: str) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no NVIDIA GPU on this machine")
    call = next(call for call in calls(device) if call.name == name)
    wanted = call.peer(*call.operands)
    wrong: list[torch.Tensor] = []

    def work() -> None:
        for _ in range(1000 if device == "cuda" else 20):
            # Freed as soon as the call is made.
            got = call.ours(*(t.clone() for t in call.operands))
            if not torch.allclose(got, wanted, rtol=1e-3, atol=1e-3):
                wrong.append(got)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs a second GPU")
def test_on_a_gpu_that_is_not_the_current_one() -> None:
    for _ in range(3):
        for call in calls("cuda:1"):
            found = call.ours(*call.operands)
            assert found.device.index == 1 and torch.cuda.current_device() == 0
            close(call, found, call.peer(*call.operands))
            if call.name not in WITHOUT_GRADIENT:
                close(call, gradients(call.ours, call), gradients(call.peer, call))


@pytest.mark.gpu
def test_a_graph_a_side_stream_and_autocast() -> None:
    for call in calls("cuda"):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                close(call, call.ours(*call.operands), call.peer(*call.operands))
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = call.ours(*call.operands)
        for operand in call.operands:
            operand.copy_(torch.randn_like(operand))
        for _ in range(2):
            graph.replay()
            close(call, out, call.peer(*call.operands))
        with torch.autocast("cuda", torch.bfloat16):
            for _ in range(2):
                got, wanted = call.ours(*call.operands), call.peer(*call.operands)
        torch.testing.assert_close(got.float(), wanted.float(), rtol=5e-2, atol=5e-1)


@pytest.mark.parametrize("device", [pytest.param("cuda", marks=pytest.mark.gpu), "cpu"])
def test_a_model_is_compiled_whole(device: str) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no NVIDIA GPU on this machine")
    torch.manual_seed(3)
    torch._dynamo.reset()
    big = device == "cuda"
    model = Model(12 if big else 2, 512 if big else 64, 8 if big else 1).to(device)
    x = torch.randn(2, 256 if big else 16, 512 if big else 64, device=device)
    if big:
        model, x = model.bfloat16(), x.bfloat16()
    backend = "inductor" if big else "aot_eager"
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    want = model(x)
    want.float().square().sum().backward()
    wanted = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    got = compiled(x)
    got.float().square().sum().backward()
    torch.testing.assert_close(got, want, rtol=5e-2, atol=1e-3)
    for name, parameter in model.named_parameters():
        spread = wanted[name].float().abs().max().item()
        difference = (parameter.grad - wanted[name]).abs().max().item()
        assert difference <= (0.1 if big else 1e-4) * spread, name
