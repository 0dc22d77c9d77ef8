"""Gradients of an expression, as expressions: the chain rule from the result back."""

from __future__ import annotations

import math
from collections.abc import Callable

from solutions.fusion.expression import (
    Node,
    add,
    constant,
    div,
    in_order,
    mul,
    neg,
    operation,
    power,
    sub,
)

Slopes = tuple[Node | None, ...]


def gradients(root: Node, slope: Node, inputs: int) -> list[Node]:
    """Return the gradient of each input, for the result's.

    Args:
        root: the expression.
        slope: its gradient, an input of the kernel that computes these.
        inputs: how many there are; 0 where the root does not depend on one.
    """
    found: dict[Node, Node] = {root: slope}
    for one in reversed(in_order([root])):
        if one not in found or not one.arguments:
            continue
        parts = _RULES[one.name](found[one], one, *one.arguments)
        for argument, part in zip(one.arguments, parts, strict=True):
            if part is not None and argument.name != "constant":
                before = found.get(argument)
                found[argument] = part if before is None else add(before, part)
    return [found.get(Node(f"x{place}"), constant(0.0)) for place in range(inputs)]


def _larger(g: Node, one: Node, a: Node, b: Node) -> Slopes:
    # Between equals the gradient is shared, as torch has it.
    half = mul(operation("eq", a, b), 0.5)
    to_a = operation("lt", b, a) if one.name == "maximum" else operation("lt", a, b)
    share = add(to_a, half)
    return mul(g, share), mul(g, sub(1.0, share))


def _power(g: Node, one: Node, a: Node, b: Node) -> Slopes:
    if b.name == "constant":
        return mul(g, mul(b, power(a, b.value - 1.0))), None
    to_a = mul(g, mul(b, operation("pow", a, sub(b, 1.0))))
    return to_a, mul(g, mul(one, operation("log", a)))


def _none(g: Node, one: Node, *arguments: Node) -> Slopes:
    return (None,) * len(arguments)


_ROOT = 2.0 / math.sqrt(math.pi)
_DENSITY = 1.0 / math.sqrt(2.0 * math.pi)
_RULES: dict[str, Callable[..., Slopes]] = {
    "add": lambda g, one, a, b: (g, g),
    "sub": lambda g, one, a, b: (g, neg(g)),
    "mul": lambda g, one, a, b: (mul(g, b), mul(g, a)),
    "div": lambda g, one, a, b: (div(g, b), neg(div(mul(g, one), b))),
    "neg": lambda g, one, a: (neg(g),),
    "exp": lambda g, one, a: (mul(g, one),),
    "expm1": lambda g, one, a: (mul(g, add(one, 1.0)),),
    "log": lambda g, one, a: (div(g, a),),
    "log1p": lambda g, one, a: (div(g, add(a, 1.0)),),
    "sqrt": lambda g, one, a: (div(mul(g, 0.5), one),),
    "rsqrt": lambda g, one, a: (mul(mul(g, -0.5), mul(one, mul(one, one))),),
    "sin": lambda g, one, a: (mul(g, operation("cos", a)),),
    "cos": lambda g, one, a: (neg(mul(g, operation("sin", a))),),
    "tanh": lambda g, one, a: (mul(g, sub(1.0, mul(one, one))),),
    "sigmoid": lambda g, one, a: (mul(g, mul(one, sub(1.0, one))),),
    "erf": lambda g, one, a: (mul(g, mul(_ROOT, operation("exp", neg(mul(a, a))))),),
    "ndtr": lambda g, one, a: (
        mul(g, mul(_DENSITY, operation("exp", mul(-0.5, mul(a, a))))),
    ),
    "abs": lambda g, one, a: (mul(g, operation("sign", a)),),
    "relu": lambda g, one, a: (mul(g, operation("lt", 0.0, a)),),
    "where": lambda g, one, c, a, b: (
        None,
        operation("where", c, g, 0.0),
        operation("where", c, 0.0, g),
    ),
    "maximum": _larger,
    "minimum": _larger,
    "pow": _power,
    **dict.fromkeys(("lt", "le", "eq", "sign", "kept"), _none),
}
