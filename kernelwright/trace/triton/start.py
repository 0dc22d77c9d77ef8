"""Triton's interpreter, started where there is no GPU, whatever was imported first.

Triton asks for ``TRITON_INTERPRET`` when it is imported: what it wrote in Triton itself
(``tl.sum``, ``tl.zeros``) is then made to be interpreted or to be compiled, for good.
What was made to be compiled is therefore interpreted when it is called.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from types import FunctionType
from typing import Any

from kernelwright import imitated
from kernelwright.trace.triton import libdevice
from kernelwright.trace.triton.after_import import after_import

# From this one on its interpreter takes what numpy allows (see `with_index`).
_MENDED = (3, 7)


def start_interpreter() -> None:
    """Have Triton's kernels run under its interpreter in this process, on the CPU."""
    os.environ.setdefault("TRITON_INTERPRET", "1")
    if (_installed() or _MENDED) < _MENDED:
        # A Triton that cannot be imported is its user's to hear of.
        with suppress(ImportError):
            from triton.runtime import interpreter

            patch = interpreter._patch_lang_tensor
            interpreter._patch_lang_tensor = with_index(patch)
    if jit := sys.modules.get("triton.runtime.jit"):
        for name, method in interpreted().items():
            setattr(jit.JITFunction, name, method)
    after_import("triton.runtime.autotuner", _tune_nothing)
    after_import("triton.runtime.interpreter", _note_launches)
    for name in libdevice.MODULES:
        after_import(name, _interpret)


def _interprets() -> bool:
    """Say whether what is imported now is to be interpreted: some imports are not."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def _tune_nothing(autotuner: Any) -> None:
    if _interprets():
        autotuner.Autotuner.run = untimed(autotuner.Autotuner.run)


def _note_launches(interpreter: Any) -> None:
    launch = interpreter.GridExecutor.__call__

    def noted(self: Any, *arguments: Any, **named: Any) -> Any:
        imitated.note()
        return launch(self, *arguments, **named)

    interpreter.GridExecutor.__call__ = noted


def _interpret(module: Any) -> None:
    if _interprets():
        libdevice.interpret(module)


def untimed(run: Callable[..., Any]) -> Callable[..., Any]:
    """Have an autotuned kernel take its first configuration: times say nothing here.

    Nor is one chosen for the launches behind a trace.
    """

    def run_first(self: Any, *arguments: Any, **named: Any) -> Any:
        every = self.configs
        self.nargs = dict(zip(self.arg_names, arguments, strict=False))
        self.configs = self.prune_configs(named)[:1]
        try:
            return run(self, *arguments, **named)
        finally:
            self.configs = every

    return run_first


def _installed() -> tuple[int, ...] | None:
    """Return Triton's version, without importing it; ``None`` where it is absent."""
    try:
        return tuple(map(int, re.findall(r"\d+", version("triton"))[:2]))
    except PackageNotFoundError:
        return None


def with_index(patch: Callable[..., None]) -> Callable[..., None]:
    """Let a tensor of one element be a bound of ``tl.range`` in every Triton.

    Its interpreter keeps a number as an array of one element. Before 3.7 it turns that
    into an ``int`` as a whole, which numpy refuses since 2.4.
    """

    def patched(tensor: Any, *scope: Any) -> None:
        patch(tensor, *scope)
        tensor.__index__ = lambda self: int(self.handle.data.item())

    return patched


def without_nan(builder: Any) -> dict[str, Callable[..., Any]]:
    """Return the interpreter's ``tl.maximum`` and ``tl.minimum``, as a GPU has them.

    Of a NaN and a number they are the number, unless they are told to propagate NaN;
    the interpreter's own do so in any case.
    """
    import numpy as np

    return {
        "create_maxnumf": lambda a, b: builder.binary_op(a, b, np.fmax),
        "create_minnumf": lambda a, b: builder.binary_op(a, b, np.fmin),
    }


def undefined(pointers: Any) -> Any:
    """Return what a load holds behind its mask where no ``other`` is given: NaN.

    Triton leaves it undefined, and its interpreter takes 0, which hides that a sum or
    a product reads it. Integers stay 0: as an index they would end in a crash.
    """
    import numpy as np
    from triton.runtime.interpreter import TensorHandle, _get_np_dtype

    element = pointers.get_element_ty()
    kind = _get_np_dtype(element)
    # numpy has no bf16: the interpreter keeps its bits.
    fill = 0x7FC0 if element.is_bf16() else np.nan if element.is_floating() else 0
    return TensorHandle(np.full(pointers.data.shape, fill, kind), element)


def interpreted() -> dict[str, Callable[..., Any]]:
    """Return methods for kernels made to be compiled, under which they are not."""
    seen: dict[Any, Any] = {}

    def run(self: Any, *arguments: Any, **options: Any) -> Any:
        return _interpreted(seen, self).run(*arguments, **options)

    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        return _interpreted(seen, self)(*arguments, **named)

    def bound(self: Any, instance: Any, owner: Any = None) -> Any:
        # Triton's compiler reads x.sum() by itself: the class holds the function.
        mine = type(instance).__module__ == "triton.language.core"
        return partial(self, instance) if mine else self

    return {"run": run, "__call__": call, "__get__": bound}


def _interpreted(seen: dict[Any, Any], function: Any) -> Any:
    """Return what the interpreter runs for a kernel that was made to be compiled."""
    from triton.runtime.interpreter import InterpretedFunction

    if function.fn not in seen:
        own = function.fn
        # With a copy of the names that it sees: the interpreter adds to them.
        alone = FunctionType(
            own.__code__, dict(own.__globals__), own.__name__, own.__defaults__,
            own.__closure__,
        )  # fmt: skip
        alone.__annotations__ = own.__annotations__
        alone.__kwdefaults__ = own.__kwdefaults__
        made = InterpretedFunction(alone)
        made.pre_run_hooks = list(function.pre_run_hooks)
        seen[own] = made
    return seen[function.fn]
