"""CUDA's mathematical functions in Triton's interpreter, which knows none of them.

``triton.language.extra.libdevice`` is where Triton keeps tanh, pow and others that
``tl.math`` lacks. Interpreted, they would return nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

# By their names in libdevice; under the same in numpy where no other is given.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in (
        "tanh", "sinh", "cosh", "tan", "sin", "cos", "exp", "exp2", "expm1", "log",
        "log2", "log10", "log1p", "sqrt", "cbrt", "floor", "ceil", "rint", "trunc",
        "hypot", "fmod", "copysign", "fmax", "fmin",
    )},
    "abs": np.abs, "fabs": np.abs, "rsqrt": lambda x: 1 / np.sqrt(x),
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "asinh": np.arcsinh,
    "acosh": np.arccosh, "atanh": np.arctanh, "pow": np.power, "atan2": np.arctan2,
}  # fmt: skip
MODULES = ("triton.language.extra.libdevice", "triton.language.extra.cuda.libdevice")


def interpret(libdevice: ModuleType) -> None:
    """Have a module's functions compute with the interpreter's numbers."""
    made = {name: _interpreted(function) for name, function in FUNCTIONS.items()}
    for name, function in {**made, "erf": _erf}.items():
        if hasattr(libdevice, name):
            setattr(libdevice, name, function)


def _erf(x: Any, **_: Any) -> Any:
    import triton.language as tl

    return tl.math.erf(x)


def _interpreted(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(first: Any, second: Any = None, **_: Any) -> Any:
        import triton.language as tl
        from triton.runtime.interpreter import interpreter_builder as builder

        if second is None:
            return tl.core.tensor(builder.unary_op(first.handle, function), first.type)
        # As an operator has it: both of one shape and type.
        second = second + tl.zeros_like(first)
        first = first + tl.zeros_like(second)
        handle = builder.binary_op(first.handle, second.handle, function)
        return tl.core.tensor(handle, first.type)

    return call
