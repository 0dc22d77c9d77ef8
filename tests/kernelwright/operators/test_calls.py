"""A call that comes again does what it did: every step but the driver's, emulated."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch

import kernelwright as kw
from kernelwright.operators import (
    Operator,
    calls,
    fingerprint,
    mark_written,
    operator,
    program,
    recorded,
    zeros_between_launches,
)
from kernelwright.operators.recorder import current_recorder

SOURCE = """
__global__ void add(const float* x, const float* y, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] + y[i];
}
__global__ void scale(float a, int shift, const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a * x[i] + shift;
}
__global__ void count(int* counter, float* out) { out[0] = atomicAdd(counter, 1); }
"""


@pytest.fixture(autouse=True)
def recorded_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprint, "everywhere", True)


@pytest.fixture(scope="module")
def module() -> kw.cuda.Module:
    return kw.cuda.compile(SOURCE, backend="emulator")


@pytest.fixture
def add(module: kw.cuda.Module) -> Callable[..., torch.Tensor]:
    def launch(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x, y = x.contiguous(), y.contiguous()
        out = torch.empty(x.numel())
        module["add"][kw.cdiv(x.numel(), 32), 32](x, y, out, x.numel())
        return out.view(x.shape)

    return launch


def texts(function: Any) -> list[str]:
    """Return what the function's recordings are written as; '' where there is none."""
    return [getattr(one, "text", "") for one in function.recordings.values()]


def again(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call three times: as ever, recorded, and repeated."""
    function(*arguments)
    function(*arguments)
    assert texts(function)[-1], "nothing was recorded"
    return function(*arguments)


def test_what_comes_once_is_not_recorded(add: Callable[..., torch.Tensor]) -> None:
    both = recorded(add)
    both(torch.ones(4), torch.ones(4))
    assert texts(both) == [""]
    both(torch.ones(4), torch.ones(4))
    assert "launch(" in texts(both)[0]


def test_one_tensor_twice_and_then_two(add: Callable[..., torch.Tensor]) -> None:
    both, x = recorded(add), torch.arange(6.0)
    assert torch.equal(again(both, x, x), 2 * x)
    y = torch.full((6,), 10.0)
    assert torch.equal(both(x, y), x + y)
    assert len(both.recordings) == 1  # type: ignore[attr-defined]


def test_parts_of_tensors_and_strides(add: Callable[..., torch.Tensor]) -> None:
    both, x = recorded(add), torch.arange(24.0).view(4, 6)
    for one in (x[1:3], x[:, ::2], x.T, x[2], x[:, 1:5]):
        assert torch.equal(again(both, one, one + 1), 2 * one + 1)
        other = torch.randn(40)[: one.numel()].view(one.shape)
        assert torch.equal(both(other, other), 2 * other)


def test_the_result_is_allocated_in_its_final_form(
    add: Callable[..., torch.Tensor],
) -> None:
    both, x = recorded(add), torch.ones(3, 5)
    assert again(both, x, x).shape == (3, 5)
    assert "view" not in texts(both)[0] and "as_strided" not in texts(both)[0]


def test_a_number_that_varies(module: kw.cuda.Module) -> None:
    @recorded(varying=("a", "shift"))
    def scaled(a: float, x: torch.Tensor, shift: int) -> torch.Tensor:
        out = torch.empty_like(x)
        module["scale"][1, 32](a, shift, x, out, x.numel())
        return out

    x = torch.arange(5.0)
    for a, shift in ((2.0, 1), (3.0, 2), (-0.5, 7), (4.0, 2**20)):
        assert torch.equal(scaled(a, x, shift), a * x + shift)
    assert len(scaled.recordings) == 1
    assert torch.equal(scaled(x=x, a=1.5, shift=3), 1.5 * x + 3)
    # What no kernel takes in four bytes decides like any other value.
    assert torch.equal(scaled(1.0, x, -4), x - 4)


def test_nothing_can_be_computed_of_what_varies(module: kw.cuda.Module) -> None:
    for use in (lambda a: a * a, lambda a: 1.0 if a else 2.0, lambda a: a == 2.0):

        @recorded(varying=("a",))
        def scaled(a: float, x: torch.Tensor, use: Any = use) -> torch.Tensor:
            return x * use(a)

        scaled(2.0, torch.ones(2))
        with pytest.raises(TypeError):
            scaled(3.0, torch.ones(2))


def test_under_autocast_torch_s_own_steps_are_not_repeated() -> None:
    @recorded
    def product(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", enabled=False):
            return x @ x

    with torch.autocast("cpu", torch.bfloat16):
        for _ in range(3):
            assert product(torch.randn(8, 8)).dtype == torch.float32


def test_torch_s_own_steps_are_repeated(add: Callable[..., torch.Tensor]) -> None:
    @recorded
    def mixed(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        first = add(x, x)
        rest = torch.zeros(x.shape[0])
        rest.copy_(first.sum(1))
        wide = torch.empty(2, 3, 4).fill_(2.0)
        return add(first, first), add(rest, wide.unbind(0)[1].sum(0)[: x.shape[0]])

    for _ in range(4):
        x = torch.randn(3, 3)
        one, other = mixed(x)
        torch.testing.assert_close(one, 4 * x)
        torch.testing.assert_close(other, 2 * x.sum(1) + 6)
    assert len(mixed.recordings) == 1


def test_memory_that_the_caller_gave(add: Callable[..., torch.Tensor]) -> None:
    @recorded
    def into(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        out.copy_(add(x, x))
        return out

    for value in (1.0, 2.0, 3.0):
        out = torch.zeros(4)
        found = into(torch.full((4,), value), out)
        assert found is out and torch.equal(out, torch.full((4,), 2 * value))


def test_counters_that_kernels_leave_as_they_were(module: kw.cuda.Module) -> None:
    @recorded
    def counted(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        module["count"][1, 1](zeros_between_launches(x.device, 1), out)
        return out

    assert again(counted, torch.ones(1)).item() == 0.0


KEPT = torch.ones(4)


@pytest.mark.parametrize(
    "decide",
    [
        lambda x: x + 1 if x.sum().item() > 0 else x - 1,
        lambda x: x + KEPT,
        lambda x: x.new_tensor([1.0, 2.0, 3.0, 4.0]) + x,
    ],
    ids=["a value decides", "another tensor", "data of its own"],
)
def test_what_cannot_be_repeated_is_done_in_full(
    decide: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    function = recorded(decide)
    for x in (torch.ones(4), -torch.ones(4), torch.ones(4), -torch.ones(4)):
        assert torch.equal(function(x), decide(x))


def test_errors_are_as_ever(add: Callable[..., torch.Tensor]) -> None:
    @recorded
    def checked(x: torch.Tensor) -> torch.Tensor:
        if x.dim() != 1:
            raise ValueError("wanted a vector")
        return add(x, x)

    again(checked, torch.ones(4))
    for _ in range(3):
        with pytest.raises(ValueError, match="wanted a vector"):
            checked(torch.ones(2, 2))
    assert current_recorder() is None
    assert torch.equal(checked(torch.ones(4)), torch.full((4,), 2.0))


def test_a_view_that_is_not_what_lies_in_memory(
    add: Callable[..., torch.Tensor],
) -> None:
    plain = recorded(lambda x: x.clone())
    again(plain, torch.ones(3))
    negative = torch.view_as_complex(torch.ones(3, 2)).conj().imag
    assert negative.is_neg()
    assert torch.equal(plain(negative), -torch.ones(3))


def test_arguments_that_have_no_hash(add: Callable[..., torch.Tensor]) -> None:
    @recorded
    def options(x: torch.Tensor, sizes: Any) -> torch.Tensor:
        return add(x, x).view(tuple(sizes))

    assert again(options, torch.ones(4), [2, 2]).shape == (2, 2)
    assert options(torch.ones(4), {4: None}).shape == (4,)


def test_only_so_many_are_kept(
    add: Callable[..., torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "MOST", 3)
    both = recorded(add)
    for n in range(1, 8):
        again(both, torch.ones(n), torch.ones(n))
    assert len(both.recordings) == 3  # type: ignore[attr-defined]


def test_a_gradient_through_more_than_one_operator(module: kw.cuda.Module) -> None:
    @operator("test_recorded_add")
    def plus(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        module["add"][1, 32](x, y, out, x.numel())
        return out

    plus.register_fake(lambda x, y: torch.empty_like(x))
    plus.register_autograd(lambda ctx, grad: (grad, grad))
    direct = recorded(lambda x, y: plus(x, y))
    around = recorded(lambda x, y: plus(plus(x * 2, y), y) * 3)
    x, y = torch.ones(4, requires_grad=True), torch.ones(4, requires_grad=True)
    for _ in range(4):
        found = torch.autograd.grad(direct(x, y).sum(), (x, y))
        assert [g[0].item() for g in found] == [1.0, 1.0]
        found = torch.autograd.grad(around(x, y).sum(), (x, y))
        assert [g[0].item() for g in found] == [6.0, 6.0]
    assert "apply(" in texts(direct)[0] and texts(around) == [""]


def test_an_operator_without_a_gradient_says_so(module: kw.cuda.Module) -> None:
    @operator("test_recorded_twice")
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x + x

    twice.register_fake(lambda x: torch.empty_like(x))
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="test_recorded_twice has no gradient"):
        twice(x).sum().backward()
    with pytest.raises(Exception, match=r"vmap|batching"):
        torch.func.vmap(twice)(torch.ones(2, 2))


def test_results_of_a_kind_of_their_own_are_made_every_time(
    add: Callable[..., torch.Tensor],
) -> None:
    class Pair(NamedTuple):
        out: torch.Tensor

    for wrap in (Pair, lambda t: {"out": t}, lambda t: t.view(2, 2).max(0)):
        function = recorded(lambda x, wrap=wrap: wrap(add(x, x)))
        for value in range(4):
            found = function(torch.full((4,), float(value)))
            first = found["out"] if isinstance(found, dict) else found[0]
            assert first.flatten()[0].item() == 2 * value


@pytest.mark.parametrize(
    "read",
    [lambda x: x.tolist()[0], lambda x: float(x.numpy()[0]), lambda x: x[0].item()],
)
def test_values_read_in_any_way(read: Callable[[torch.Tensor], float]) -> None:
    function = recorded(lambda x: x + read(x))
    for value in range(4):
        assert function(torch.full((4,), float(value)))[0].item() == 2 * value


def test_where_in_memory_a_view_begins() -> None:
    function = recorded(lambda x: x.as_strided((2,), (1,), x.storage_offset()) * 2)
    base = torch.arange(12.0)
    for begin in (0, 0, 0, 4, 8):
        assert function(base[begin : begin + 4])[0].item() == 2 * begin


@pytest.mark.parametrize("last", [lambda out: out, lambda out: out.view(2, 2) * 1])
def test_memory_that_something_unseen_writes(
    last: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    @recorded
    def by_another_thread(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        thread = threading.Thread(target=lambda: out.copy_(2 * x))
        thread.start()
        thread.join()
        return last(out)

    for value in (1, 1, 2, 3):
        assert by_another_thread(torch.full((4,), float(value))).sum() == 8 * value


def test_memory_elsewhere_and_one_view_twice(add: Callable[..., torch.Tensor]) -> None:
    elsewhere = recorded(lambda x: torch.empty(3, device="meta"))
    both = recorded(lambda x: (add(x, x).view(2, 2),) * 2)
    for _ in range(4):
        assert elsewhere(torch.ones(4)).device.type == "meta"
        one, other = both(torch.ones(4))
        assert torch.equal(one, other) and one[0, 0].item() == 2.0


def test_an_integer_where_a_kernel_takes_a_float(module: kw.cuda.Module) -> None:
    @recorded(varying=("a",))
    def scaled(a: float, x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        module["scale"][1, 32](a, 0, x, out, x.numel())
        return out

    for a in (2, 2, 3, 2.5, 2.5, 4.5, 7):
        assert scaled(a, torch.ones(4))[0].item() == a


def test_floats_that_compare_equal_or_never() -> None:
    function = recorded(lambda x, a: x * a)
    for a in (0.0, 0.0, 0.0, -0.0):
        sign = math.copysign(1.0, function(torch.ones(1), a).item())
        assert sign == math.copysign(1.0, a)
    for _ in range(5):
        function(torch.ones(1), float("nan"))
    assert len(function.recordings) <= 2  # type: ignore[attr-defined]


class Options:
    """Decides by what it holds."""

    factor = 1.0


def test_objects_are_asked_every_time() -> None:
    function, options = recorded(lambda x, o: x * o.factor), Options()
    for factor in (1.0, 1.0, 2.0, 3.0):
        options.factor = factor
        assert function(torch.ones(1), options).item() == factor
    assert not function.recordings  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def plus(module: kw.cuda.Module) -> Operator:
    @operator("test_recorded_plus")
    def plus(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        module["add"][1, 32](x, y, out, x.numel())
        return out

    plus.register_fake(lambda x, y: torch.empty_like(x))
    plus.register_autograd(lambda ctx, grad: (grad, grad))
    return plus


def test_one_tensor_twice_has_both_gradients(plus: Operator) -> None:
    both, x = recorded(lambda x, y: plus(x, y)), torch.ones(4, requires_grad=True)
    for _ in range(4):
        (slope,) = torch.autograd.grad(both(x, x).sum(), x)
        assert slope[0].item() == 2.0
    assert "apply(" in texts(both)[0]


def test_what_is_done_around_an_operator_is_done_every_time(plus: Operator) -> None:
    x = torch.ones(4, requires_grad=True)
    running = torch.zeros(1)

    def scaled(x: torch.Tensor) -> torch.Tensor:
        return plus(x, x).mul_(10)

    def counted(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            running.add_(1)
        return plus(x, x)

    def hooked(x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = plus(x, x)
        out.register_hook(lambda grad: grad * 100)
        return out

    for function, slope in ((scaled, 20.0), (counted, 2.0), (hooked, 200.0)):
        again = recorded(function)
        for _ in range(4):
            (found,) = torch.autograd.grad(again(x).sum(), x)
            assert found[0].item() == slope
    assert running.item() == 4.0

    @recorded
    def within(x: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            return plus(x, x)

    for _ in range(4):
        with torch.no_grad():
            assert within(x).requires_grad


def test_memory_that_a_kernel_changed_is_known_to_autograd(
    add: Callable[..., torch.Tensor],
) -> None:
    @recorded
    def into(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        out.copy_(add(x, x))
        mark_written(out)
        return out

    for _ in range(4):
        leaf = torch.ones(4, requires_grad=True)
        kept = leaf * 1
        square = kept * kept
        with torch.no_grad():
            into(torch.ones(4), kept)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            square.sum().backward()


def test_large_tensors_are_let_go(
    add: Callable[..., torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "LARGE", 64 * 4)

    @recorded
    def thrice(x: torch.Tensor) -> torch.Tensor:
        first = add(x, x)
        second = torch.mul(add(first, x), 2)
        return add(second, x).view(4, 16)

    x = torch.arange(64.0)
    for _ in range(4):
        assert torch.equal(thrice(x), (6 * x + x).view(4, 16))
    (text,) = filter(None, texts(thrice))
    lines = [line.strip() for line in text.splitlines()]
    gone = [line for line in lines if line.startswith("del ")]
    returned = lines[-1].removeprefix("return ")
    assert gone and all(returned not in line.split() for line in gone), text
    # What the first sums took is free before the last one's memory is taken.
    last = max(i for i, line in enumerate(lines) if "= empty(" in line)
    assert sum(lines.index(line) < last for line in gone) >= 2, text
