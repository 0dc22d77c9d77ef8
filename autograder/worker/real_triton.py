"""A Triton answer's kernels, put through the compiler that a GPU would use.

It needs no GPU down to Triton's own machine-independent code. The text holds kernels
alone, and a kernel is compiled from its text: the learner's Python does not run here.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from autograder.worker.wire import Header

_OPERATION = re.compile(r"\b(?:tt|math)\.\w+")
_COURSES = ("kernelwright.", "autograder.worker.adapters.tiles")


def compile_kernels(header: Header) -> Header:
    """Compile each kernel for the arguments of each of its launches.

    Returns:
        ``operations`` of all of them together; or ``message`` on the first that does
        not compile, with its ``kernel`` and ``line``.
    """
    _without_interpreter()
    namespace: dict[str, Any] = {"__name__": "kernels"}
    exec(compile(header["prelude"], "prelude", "exec"), namespace)
    for cell in header["cells"]:
        # A kernel's text is looked up by its file and line.
        path = Path(f"{cell['id']}_kernels.py").resolve()
        path.write_text(cell["source"], encoding="utf-8")
        exec(compile(cell["source"], str(path), "exec"), namespace)
    found: set[str] = set()
    for launch in header["launches"]:
        name = str(launch["kernel"])
        # Some exercises ask for a part: the kernel around it is the course's own.
        owner = str(launch.get("module"))
        around = owner.startswith(_COURSES)
        own = vars(importlib.import_module(owner)) if around else namespace
        kernel = own.get(name)
        if not hasattr(kernel, "params"):
            return _told(
                name, "it is no function of the cell's own with @triton.jit above it"
            )
        unknown = {p: t["unknown"] for p, t in launch["arguments"].items()
                   if "unknown" in t}  # fmt: skip
        if strange := [p for p, kind in unknown.items() if kind not in _UNDESCRIBED]:
            return _told(
                name,
                f"its argument {strange[0]} is a {unknown[strange[0]]}, which Triton "
                "gives to no kernel: a number, a tensor or a @triton.jit function is",
            )
        if unknown:
            continue
        # Anything else that goes wrong is no word of the compiler's on the kernel.
        from triton.compiler.errors import CompilationError

        try:
            found |= _operations(kernel, launch, namespace)
        except CompilationError as error:
            return _refused(name, error, namespace)
        except _OptionRefused as error:
            return _told(name, str(error))
    return {"ok": True, "operations": sorted(found)[:200]}


def _without_interpreter() -> None:
    """Import Triton anew: whether it interprets is fixed when it is imported."""
    os.environ.pop("TRITON_INTERPRET", None)
    for name in list(sys.modules):
        native = name.startswith("triton._C")
        if name.startswith(("triton.", *_COURSES)) and not native:
            del sys.modules[name]
    sys.modules.pop("triton", None)


class _OptionRefused(Exception):
    """The compiler does not take a launch's num_warps, or another option of it."""


def _operations(
    kernel: Any, launch: Mapping[str, Any], namespace: Mapping[str, Any]
) -> set[str]:
    """Return what a kernel is made of, as the compiler leaves it without dead code."""
    from triton._C.libtriton import ir
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.compiler.compiler import make_backend

    types: dict[str, str] = {}
    constants: dict[str, Any] = {}
    for parameter in kernel.params:
        told = launch["arguments"].get(parameter.name, {})
        if parameter.is_constexpr or "type" not in told:
            types[parameter.name] = "constexpr"
            constants[parameter.name] = _value(told, namespace)
        else:
            types[parameter.name] = str(told["type"])
    source = ASTSource(kernel, types, constants)
    backend = make_backend(GPUTarget("cuda", 90, 32))
    asked = launch.get("options", {})
    try:
        options = backend.parse_options(asked)
    except AssertionError as error:
        given = ", ".join(f"{name}={value}" for name, value in asked.items())
        raise _OptionRefused(
            f"{error or 'an option is refused'} (got {given})"
        ) from None
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    made = source.make_ir(
        GPUTarget("cuda", 90, 32),
        options,
        backend.get_codegen_implementation(options),
        backend.get_module_map(),
        context,
    )
    stages: dict[str, Any] = {}
    backend.add_stages(stages, options, source.language)
    return set(_OPERATION.findall(str(stages["ttir"](made, {}))))


def _value(told: Mapping[str, Any], namespace: Mapping[str, Any]) -> Any:
    """Read a constant: a number, a text, a function, a dtype of Triton's, or None."""
    import triton.language as tl

    if "float" in told:
        return float.fromhex(told["float"])
    if "function" in told:
        return namespace.get(told["function"])
    if "dtype" in told:
        return tl.dtype(told["dtype"])
    return told.get("value")


def _refused(name: str, error: BaseException, namespace: Mapping[str, Any]) -> Header:
    """Say on which of the learner's lines the compiler gave up, and why."""
    inner = error
    while type(inner.__cause__) is type(error) and inner.__cause__ is not None:
        inner = inner.__cause__
    reason = _plain(str(getattr(inner, "error_message", None) or inner))
    node, source = getattr(inner, "node", None), str(getattr(inner, "src", "") or "")
    line = 0
    owner = re.search(r"\bdef (\w+)", source)
    function: Any = namespace.get(owner[1]) if owner else None
    if node is not None and hasattr(function, "raw_src"):
        # The compiler's text begins with the def.
        above = [text.startswith("def ") for text in function.raw_src].index(True)
        line = function.starting_line_number + above + node.lineno - 1
    return _told(name, reason, line)


def _plain(reason: str) -> str:
    """Return what the compiler says, without the exception that it wraps it in."""
    if unseen := re.search(r"Cannot access global variable (\w+)", reason):
        return (
            f"a kernel does not see {unseen[1]}, which stands outside of it. Write a "
            f"number as {unseen[1]} = tl.constexpr(...), and put @triton.jit above a "
            "function."
        )
    wrapped = re.fullmatch(r"\w+\(([\"'])(.*?)\1,?\)", reason.strip(), re.DOTALL)
    return (wrapped[2] if wrapped else reason).strip()


def _told(name: str, message: str, line: int = 0) -> Header:
    return {"ok": True, "kernel": name, "message": message[:2000], "line": line}


def told_launch(function: Any, given: Mapping[str, Any]) -> Header:
    """Tell a launch's arguments in plain types, for the compiler to be given."""
    parameters: Iterable[Any] = inspect.signature(function).parameters.values()
    arguments = {p.name: _argument(given.get(p.name, p.default)) for p in parameters}
    # Of a number that is no constant its type alone is compiled: one launch is like
    # another.
    for p in parameters:
        told = arguments[p.name]
        if "constexpr" not in str(p.annotation) and told.get("type", "i1") != "i1":
            told.pop("value", None)
            told.pop("float", None)
    options = {n: v for n in _OPTIONS if type(v := given.get(n)) is int}
    return {
        "kernel": function.__name__[:100],
        "module": str(function.__module__)[:100],
        "arguments": arguments,
        "options": options,
    }


# What a launch says of its compilation, beside the kernel's own parameters.
_OPTIONS = ("num_warps", "num_stages", "num_ctas")
# What Triton takes and is not described here.
_UNDESCRIBED = ("TensorDescriptor", "tuple", "Tensor")
_TYPES = {
    **{f"float{n}": f"fp{n}" for n in (16, 32, 64)},
    **{f"int{n}": f"i{n}" for n in (8, 16, 32, 64)},
    **{f"uint{n}": f"u{n}" for n in (8, 16, 32, 64)},
    "bfloat16": "bf16",
    "bool": "i1",
}


def _argument(value: Any) -> Header:
    if hasattr(value, "data_ptr"):
        name = str(value.dtype).removeprefix("torch.")
        known = name in _TYPES
        return {"type": f"*{_TYPES[name]}"} if known else {"unknown": "Tensor"}
    # A bool is an int as well.
    if value is None or isinstance(value, bool | str):
        return {"value": value, **({"type": "i1"} if value in (True, False) else {})}
    if isinstance(value, int):
        # What is 1 is compiled as a constant.
        kind = "i32" if -(1 << 31) <= value < 1 << 31 else "i64"
        return {"value": value, **({} if value == 1 else {"type": kind})}
    if isinstance(value, float):
        return {"float": value.hex(), "type": "fp32"}
    if hasattr(value, "fn") and hasattr(value.fn, "__code__"):
        return {"function": value.fn.__name__}
    dtype = getattr(value, "name", None)
    if type(value).__module__.startswith("triton") and isinstance(dtype, str):
        return {"dtype": dtype}
    kind = "tuple" if isinstance(value, tuple) else type(value).__name__
    return {"unknown": kind[:100]}
