"""What a chain of operations is before it is a kernel: a graph of few kinds of node.

``traced`` calls a function of torch's operations with placeholders. Each operation
that it makes of them becomes a node; equal nodes are one. The same function still
takes tensors: what is traced is what torch would do.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch

Number = int | float


@dataclass(frozen=True)
class Node:
    """A number an element: an input, a constant, or an operation on other nodes.

    Args:
        name: of the operation; ``x0``, ``x1``, … for inputs, ``constant``.
        arguments: nodes that it takes.
        value: of a constant.
    """

    name: str
    arguments: tuple[Node, ...] = ()
    value: float = 0.0
    _hash: int = field(init=False, compare=False, repr=False, default=0)

    def __post_init__(self) -> None:
        # Once: a deep graph is asked for it all the time.
        object.__setattr__(self, "_hash", hash((self.name, self.arguments, self.value)))

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        """Write the node as a call, which ``parsed`` reads."""
        if self.name == "constant":
            return repr(self.value)
        if not self.arguments:
            return self.name
        return f"{self.name}({', '.join(map(str, self.arguments))})"

    @property
    def input(self) -> int | None:
        """Which input it is, if it is one."""
        named = self.name[0] == "x" and self.name[1:].isdigit()
        return int(self.name[1:]) if named else None

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Node:
        """Stand for a tensor in one of torch's functions."""
        made = _BY_TORCH.get(function)
        if made is None:
            name = getattr(function, "__name__", str(function))
            known = sorted({f.__name__ for f in _BY_TORCH})
            raise TypeError(
                f"fuse: torch's {name} is none of the operations that are fused: "
                f"{', '.join(known)}. Call it outside of the fused function."
            )
        return made(*args, **(kwargs or {}))

    def __getattr__(self, name: str) -> Any:
        """Find a tensor's method: ``x.tanh()`` is ``torch.tanh(x)``."""
        function = getattr(torch, name, None)
        if name.startswith("_") or function not in _BY_TORCH:
            raise AttributeError(
                f"fuse: a tensor's {name} is none of the operations that are fused"
            )
        return lambda *given, **named: _BY_TORCH[function](self, *given, **named)

    def __add__(self, other: Any) -> Node:
        return add(self, other)

    def __radd__(self, other: Any) -> Node:
        return add(other, self)

    def __sub__(self, other: Any) -> Node:
        return sub(self, other)

    def __rsub__(self, other: Any) -> Node:
        return sub(other, self)

    def __mul__(self, other: Any) -> Node:
        return mul(self, other)

    def __rmul__(self, other: Any) -> Node:
        return mul(other, self)

    def __truediv__(self, other: Any) -> Node:
        return div(self, other)

    def __rtruediv__(self, other: Any) -> Node:
        return div(other, self)

    def __neg__(self) -> Node:
        return neg(self)

    def __pow__(self, other: Any) -> Node:
        return power(self, other)

    def __abs__(self) -> Node:
        return operation("abs", self)

    def __lt__(self, other: Any) -> Node:
        return operation("lt", self, other)

    def __gt__(self, other: Any) -> Node:
        return operation("lt", other, self)

    def __le__(self, other: Any) -> Node:
        return operation("le", self, other)

    def __ge__(self, other: Any) -> Node:
        return operation("le", other, self)

    def __bool__(self) -> bool:
        raise TypeError(
            "fuse: a branch on a tensor's value cannot be traced, since each element "
            "may take another: torch.where(condition, a, b)."
        )


def constant(value: Number) -> Node:
    """Return a node for a number."""
    return Node("constant", (), float(value))


def node(value: Any) -> Node:
    """Return a node for a node or a number.

    Raises:
        TypeError: for anything else, a tensor for example.
    """
    if isinstance(value, Node):
        return value
    if isinstance(value, (int, float)):
        return constant(value)
    raise TypeError(
        f"fuse: {type(value).__name__} takes part in the fused function; wanted its "
        "own arguments and Python numbers: pass a tensor as an argument."
    )


def operation(name: str, *arguments: Any) -> Node:
    """Return an operation on nodes and numbers."""
    return Node(name, tuple(map(node, arguments)))


def _is(value: Any, number: float) -> bool:
    found = node(value)
    return found.name == "constant" and found.value == number


def add(a: Any, b: Any, *, alpha: Number = 1) -> Node:
    """Add; nothing is done for a zero."""
    b = mul(alpha, b)
    if _is(a, 0.0) or _is(b, 0.0):
        return node(b if _is(a, 0.0) else a)
    return operation("add", a, b)


def sub(a: Any, b: Any, *, alpha: Number = 1) -> Node:
    """Subtract."""
    b = mul(alpha, b)
    return node(a) if _is(b, 0.0) else operation("sub", a, b)


def mul(a: Any, b: Any) -> Node:
    """Multiply; nothing is done for a one."""
    if _is(a, 1.0) or _is(b, 1.0):
        return node(b if _is(a, 1.0) else a)
    return operation("mul", a, b)


def div(a: Any, b: Any) -> Node:
    """Divide."""
    return node(a) if _is(b, 1.0) else operation("div", a, b)


def neg(a: Any) -> Node:
    """Change the sign."""
    return operation("neg", a)


def power(a: Any, exponent: Any) -> Node:
    """Raise to a power: squares and roots as such."""
    if isinstance(exponent, (int, float)):
        known: dict[float, Callable[[], Node]] = {
            1.0: lambda: node(a),
            2.0: lambda: mul(a, a),
            3.0: lambda: mul(mul(a, a), a),
            0.5: lambda: operation("sqrt", a),
            -0.5: lambda: operation("rsqrt", a),
            -1.0: lambda: div(1.0, a),
        }
        if float(exponent) in known:
            return known[float(exponent)]()
    return operation("pow", a, exponent)


def relu(a: Any, inplace: bool = False) -> Node:
    """Cut off below zero; a NaN stays one."""
    return operation("relu", a)


def sigmoid(a: Any) -> Node:
    """Return ``1 / (1 + exp(-a))``."""
    return operation("sigmoid", a)


def silu(a: Any, inplace: bool = False) -> Node:
    """Return ``a * sigmoid(a)``."""
    return mul(a, sigmoid(a))


def gelu(a: Any, *, approximate: str = "none") -> Node:
    """Return ``a * Phi(a)``, Phi the normal distribution's, or tanh's stand-in.

    Source: Hendrycks and Gimpel, Gaussian Error Linear Units (2016), section 2.
    """
    if approximate == "none":
        return mul(a, operation("ndtr", a))
    if approximate == "tanh":  # (1 + tanh(u)) / 2 is the sigmoid of 2 u
        inner = mul(a, add(1.0, mul(0.044715, mul(a, a))))
        return mul(a, sigmoid(mul(inner, 2 * math.sqrt(2 / math.pi))))
    raise ValueError(f"gelu: approximate is {approximate!r}; wanted 'none' or 'tanh'.")


def clamp(a: Any, min: Any = None, max: Any = None) -> Node:
    """Keep between two bounds."""
    found = node(a)
    if min is not None:
        found = operation("maximum", found, min)
    return found if max is None else operation("minimum", found, max)


def leaky_relu(a: Any, negative_slope: Number = 0.01, inplace: bool = False) -> Node:
    """Return a, or below zero a share of it."""
    return operation("where", operation("lt", 0.0, a), a, mul(negative_slope, a))


def _by_name(*names: str) -> dict[Any, Callable[..., Node]]:
    """Say which of torch's functions are operations of the same name."""

    def made(name: str) -> Callable[..., Node]:
        return lambda *given: operation(name, *given)

    return {getattr(torch, name): made(name) for name in names}


_FUNCTIONAL = torch.nn.functional
_BY_TORCH: dict[Any, Callable[..., Node]] = {
    **_by_name("exp", "log", "sqrt", "rsqrt", "tanh", "erf", "abs", "sin", "cos"),
    **_by_name("maximum", "minimum", "where", "lt", "le", "log1p", "expm1", "sign"),
    torch.special.ndtr: lambda a: operation("ndtr", a),
    torch.gt: lambda a, b: operation("lt", b, a),
    torch.ge: lambda a, b: operation("le", b, a),
    torch.add: add,
    torch.sub: sub,
    torch.mul: mul,
    torch.div: div,
    torch.neg: neg,
    torch.pow: power,
    torch.square: lambda a: mul(a, a),
    torch.reciprocal: lambda a: div(1.0, a),
    torch.sigmoid: sigmoid,
    torch.relu: relu,
    torch.clamp: clamp,
    _FUNCTIONAL.relu: relu,
    _FUNCTIONAL.silu: silu,
    _FUNCTIONAL.gelu: gelu,
    _FUNCTIONAL.leaky_relu: leaky_relu,
    _FUNCTIONAL.sigmoid: sigmoid,
    _FUNCTIONAL.tanh: lambda a: operation("tanh", a),
}


def traced(function: Callable[..., Any], inputs: int) -> Node:
    """Call a function with a placeholder for each input, and return what it made.

    Raises:
        TypeError: an operation that is not fused, or a result that is no node.
    """
    found = function(*(Node(f"x{place}") for place in range(inputs)))
    if not isinstance(found, (Node, int, float)):
        raise TypeError(
            f"fuse: the function returned {type(found).__name__}; wanted one tensor, "
            "made of its arguments by operations on each element."
        )
    return node(found)


@cache
def parsed(text: str) -> Node:
    """Return the node that ``str`` wrote."""
    return _read(ast.parse(text, mode="eval").body)


def _read(tree: ast.expr) -> Node:
    if isinstance(tree, ast.Constant) and isinstance(tree.value, (int, float)):
        return constant(tree.value)
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
        return constant(-_read(tree.operand).value)
    if isinstance(tree, ast.Name):
        return constant(float(tree.id)) if tree.id in ("inf", "nan") else Node(tree.id)
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name):
        return Node(tree.func.id, tuple(map(_read, tree.args)))
    raise ValueError(f"no expression: {ast.unparse(tree)}")


def in_order(roots: Sequence[Node]) -> list[Node]:
    """Return every node that some roots need, arguments first, each once."""
    done: dict[Node, None] = {}
    waiting = [(root, False) for root in reversed(roots)]
    while waiting:
        one, ready = waiting.pop()
        if one in done:
            continue
        if ready:
            done[one] = None
            continue
        waiting.append((one, True))
        waiting += [(argument, False) for argument in reversed(one.arguments)]
    return list(done)
