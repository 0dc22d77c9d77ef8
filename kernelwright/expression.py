"""An expression of numbers as a graph: what a small compiler begins with.

``traced`` calls a function with nodes in the place of its arguments. Each operation
that the function makes of them becomes a node, and equal nodes are one object::

    root, inputs = traced(lambda x, y: (x * y).tanh() + 1)
    print(root)  # add(tanh(mul(x0, x1)), 1.0)

The same function takes tensors: nodes have the operators and methods of these.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

FUNCTIONS = ("exp", "log", "sqrt", "tanh", "sigmoid", "erf", "relu")
"""The methods that a node has beside its operators ``+ - * / >`` and the sign."""


class Node:
    """A number: an input, a constant, or an operation on other nodes.

    Args:
        op: ``input``, ``constant``, or the name of an operation: ``add``, ``sub``,
            ``mul``, ``div``, ``neg``, ``gt``, or one of ``FUNCTIONS``.
        arguments: nodes, or Python numbers, that it takes.
        value: an input's position, or a constant's number.
    """

    op: str
    arguments: tuple[Node, ...]
    value: float | None
    _made: weakref.WeakValueDictionary[Any, Node] = weakref.WeakValueDictionary()

    def __new__(cls, op: str, *arguments: Any, value: float | None = None) -> Node:
        """Return the node that was made of the same before, if one was."""
        nodes = tuple(map(node, arguments))
        # 0.0 equals -0.0, and its text does not.
        key = op, nodes, repr(value)
        made = cls._made.get(key)
        if made is None:
            made = super().__new__(cls)
            made.op, made.arguments, made.value = op, nodes, value
            cls._made[key] = made
        return made

    def __str__(self) -> str:
        """Write the node as a call."""
        if self.op == "input":
            return f"x{self.value}"
        if self.op == "constant":
            return repr(self.value)
        return f"{self.op}({', '.join(map(str, self.arguments))})"

    __repr__ = __str__

    def __getattr__(self, name: str) -> Callable[[], Node]:
        """Find a tensor's method: ``x.tanh()``."""
        if name not in FUNCTIONS:
            raise AttributeError(
                f"a node has no {name}; it has {', '.join(FUNCTIONS)}, + - * / and >"
            )
        return lambda: Node(name, self)

    def __add__(self, other: Any) -> Node:
        return Node("add", self, other)

    def __radd__(self, other: Any) -> Node:
        return Node("add", other, self)

    def __sub__(self, other: Any) -> Node:
        return Node("sub", self, other)

    def __rsub__(self, other: Any) -> Node:
        return Node("sub", other, self)

    def __mul__(self, other: Any) -> Node:
        return Node("mul", self, other)

    def __rmul__(self, other: Any) -> Node:
        return Node("mul", other, self)

    def __truediv__(self, other: Any) -> Node:
        return Node("div", self, other)

    def __rtruediv__(self, other: Any) -> Node:
        return Node("div", other, self)

    def __neg__(self) -> Node:
        return Node("neg", self)

    def __gt__(self, other: Any) -> Node:
        return Node("gt", self, other)

    def __bool__(self) -> bool:
        raise TypeError(
            "a node has no value yet: each element of a tensor may take another branch "
            "of an if. Write (x > 0) * a for: a where x is above 0, and 0 elsewhere."
        )


def node(value: Any) -> Node:
    """Return a node for a node or a Python number.

    Raises:
        TypeError: for anything else, a tensor for example.
    """
    if isinstance(value, Node):
        return value
    if isinstance(value, int | float):
        return Node("constant", value=float(value))
    raise TypeError(
        f"an expression is made of its arguments and Python numbers, got "
        f"{type(value).__name__}: pass it as an argument."
    )


def traced(function: Callable[..., Any]) -> tuple[Node, int]:
    """Return what a function makes of nodes, and how many inputs it takes."""
    inputs = len(inspect.signature(function).parameters)
    return node(function(*(Node("input", value=i) for i in range(inputs)))), inputs


def in_order(root: Node) -> list[Node]:
    """Return every node of an expression once, each behind its arguments."""
    done: dict[Node, None] = {}
    waiting = [(root, False)]
    while waiting:
        one, ready = waiting.pop()
        if ready:
            done[one] = None
        elif one not in done:
            waiting += [(one, True), *((a, False) for a in one.arguments)]
    return list(done)


def differentiable(
    forward: Callable[..., torch.Tensor],
    backward: Callable[..., Sequence[torch.Tensor]],
) -> Callable[..., torch.Tensor]:
    """Return one step of autograd.

    Args:
        forward: takes the inputs, and returns the result.
        backward: takes the inputs and the result's gradient, and returns the inputs'
            gradients.

    Both are given contiguous tensors that begin at a multiple of 16 bytes.
    """

    class Step(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(*inputs)
            return forward(*map(_ready, inputs))

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            return tuple(backward(*map(_ready, (*ctx.saved_tensors, grad))))

    return Step.apply


def _ready(x: torch.Tensor) -> torch.Tensor:
    """Return what a kernel can read in packs: part of a tensor may begin anywhere."""
    x = x.contiguous()
    return x if x.data_ptr() % 16 == 0 else x.clone()
