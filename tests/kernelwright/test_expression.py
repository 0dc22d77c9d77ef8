"""Expressions: what a function makes of nodes, and a step of autograd."""

from __future__ import annotations

import pytest
import torch

from kernelwright.expression import Node, differentiable, in_order, traced


def test_equal_nodes_are_one_object() -> None:
    root, inputs = traced(lambda x, y: (x * y).tanh() + (x * y).tanh())
    assert inputs == 2
    assert root.arguments[0] is root.arguments[1]
    assert str(root) == "add(tanh(mul(x0, x1)), tanh(mul(x0, x1)))"
    assert Node("constant", value=0.0) is not Node("constant", value=-0.0)


def test_every_operator() -> None:
    root, _ = traced(lambda x: 1 + x - (2 - x) * (3 * x) / (x / 4) - (5 / x) * -x)
    ops = {node.op for node in in_order(root)}
    assert ops == {"input", "constant", "add", "sub", "mul", "div", "neg"}
    assert str(traced(lambda x: x > 0)[0]) == "gt(x0, 0.0)"
    assert str(traced(lambda x: 7)[0]) == "7.0"


def test_arguments_come_first_and_each_node_once() -> None:
    def deep(x: Node) -> Node:
        for _ in range(2000):
            x = x * x + 1
        return x

    order = in_order(traced(deep)[0])
    place = {node: i for i, node in enumerate(order)}
    assert len(place) == len(order) == 2 + 2 * 2000
    assert all(place[a] < place[node] for node in order for a in node.arguments)


def test_what_is_refused() -> None:
    with pytest.raises(AttributeError, match="a node has no cosh; it has exp, log"):
        traced(lambda x: x.cosh())
    with pytest.raises(TypeError, match=r"Write \(x > 0\) \* a"):
        traced(lambda x: x if x > 0 else -x)
    with pytest.raises(TypeError, match="got Tensor: pass it as an argument"):
        traced(lambda x: x + torch.ones(3))


def test_a_step_of_autograd_is_given_what_packs_can_read() -> None:
    given: list[torch.Tensor] = []

    def forward(x: torch.Tensor) -> torch.Tensor:
        given.append(x)
        return 3 * x

    def backward(x: torch.Tensor, grad: torch.Tensor) -> list[torch.Tensor]:
        given.extend((x, grad))
        return [3 * grad]

    x = torch.randn(4, 9)[:, 1:].requires_grad_()
    differentiable(forward, backward)(x).sum().backward()
    assert x.grad is not None and torch.equal(x.grad, torch.full_like(x, 3.0))
    assert len(given) == 3
    assert all(t.is_contiguous() and t.data_ptr() % 16 == 0 for t in given)
