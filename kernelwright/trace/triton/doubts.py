"""Where Triton's interpreter is known to be wrong: bf16.

It keeps a bf16 number as its 16 bits in a whole number. Only the way to fp32 and back
is made for that; every other operation computes with the bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kernelwright.trace.triton.watch import Watch

_BITS = (
    "Triton's interpreter computes with the bits of bf16 as if they were whole "
    "numbers: the values from here on are wrong, though a GPU's are right. Convert to "
    "fp32 first: x.to(tl.float32). What was traced of memory holds"
)
_CUT = (
    "Triton's interpreter cuts off what does not fit into bf16, where a GPU rounds to "
    "the nearest: the last bit may differ from a GPU's"
)
# Operations that only move bits, or tell equal from different.
_HARMLESS = ("equal", "not_equal", "where", "bitwise_and", "bitwise_or", "bitwise_xor")


def doubtful(watch: Watch, builder: Any) -> dict[str, Callable[..., Any]]:
    """Return the builder's methods that bf16 goes wrong in, each with a watch."""
    computing = (
        *("binary_op", "unary_op", "ternary_op", "create_idiv", "create_fma"),
        *("create_dot", "create_rsqrt", "create_erf"),
    )
    watched = {name: _computing(watch, getattr(builder, name)) for name in computing}
    for name in ("cast_impl", "create_fp_to_fp"):
        watched[name] = _converting(watch, getattr(builder, name))
    if not hasattr(builder, "get_bf16"):
        watched["get_bf16"] = _bf16  # it has no way to write a number as bf16
    return watched


def _bf16(value: float) -> Any:
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    bits = torch.tensor([value], dtype=torch.bfloat16).view(torch.uint16)
    return TensorHandle(bits.numpy(), tl.bfloat16)


def _computing(watch: Watch, original: Callable[..., Any]) -> Callable[..., Any]:
    def compute(*operands: Any) -> Any:
        kind = getattr(operands[-1], "__name__", "")
        if kind not in _HARMLESS and any(_is_bf16(o) for o in operands):
            watch.doubt("arithmetic", _BITS)
        return original(*operands)

    return compute


def _converting(watch: Watch, original: Callable[..., Any]) -> Callable[..., Any]:
    def convert(source: Any, target: Any, *more: Any) -> Any:
        old, new = _scalar(source.dtype), _scalar(target)
        if (old, new) == ("fp32", "bf16"):
            watch.doubt("rounding", _CUT)
        elif "bf16" in (old, new) and old != new and (old, new) != ("bf16", "fp32"):
            watch.doubt("arithmetic", _BITS)
        return original(source, target, *more)

    return convert


def _is_bf16(operand: Any) -> bool:
    return hasattr(operand, "dtype") and _scalar(operand.dtype) == "bf16"


def _scalar(dtype: Any) -> str:
    return str(getattr(dtype, "scalar", dtype))
