"""Triton's interpreter with a watch between it and memory.

The interpreter is one object of its module, and what it changes is module state; so
is what is changed here. All of it is put back when the watch ends, however it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

import numpy as np

from kernelwright.errors import LaunchError
from kernelwright.trace.report import Op
from kernelwright.trace.triton.doubts import doubtful
from kernelwright.trace.triton.memory import GuardedArguments
from kernelwright.trace.triton.start import (
    interpreted,
    untimed,
    with_index,
    without_nan,
)
from kernelwright.trace.triton.watch import Watch

_ABSENT = object()
_one_at_a_time = Lock()


class _Changes:
    """Attributes that were replaced, and what they were."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []

    def replace(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute of a class, a module or an object."""
        self._before.append((owner, name, vars(owner).get(name, _ABSENT)))
        setattr(owner, name, value)

    def keep(self, owner: Any) -> None:
        """Remember all attributes: the interpreter leaves some of its own behind."""
        self._before += [(owner, name, value) for name, value in vars(owner).items()]

    def undo(self) -> None:
        """Put everything back, the last change first."""
        for owner, name, value in reversed(self._before):
            if value is _ABSENT:
                delattr(owner, name)
            elif vars(owner).get(name, _ABSENT) is not value:
                setattr(owner, name, value)


@contextmanager
def watched(watch: Watch) -> Iterator[None]:
    """Have every Triton kernel that is launched run under a watch.

    Raises:
        LaunchError: another watch is running; there is one interpreter.
    """
    if not _one_at_a_time.acquire(blocking=False):
        raise LaunchError(
            "another trace is running, and Triton has one interpreter: trace one "
            "function after another."
        )
    try:
        yield from _watched(watch)
    finally:
        _one_at_a_time.release()


def _watched(watch: Watch) -> Iterator[None]:
    import triton.language as tl
    from triton.runtime import autotuner, interpreter, jit

    changes = _Changes()
    builder = interpreter.interpreter_builder
    for owner in (tl, tl.core, tl.math, tl.core.tensor):
        changes.keep(owner)
    # Older Tritons have no descriptors.
    if descriptor := getattr(tl.core, "tensor_descriptor_base", None):
        changes.keep(descriptor)
    try:
        _watch_launches(watch, changes, interpreter.GridExecutor, builder)
        changes.replace(builder, "create_masked_load", _load(watch, builder))
        changes.replace(builder, "create_masked_store", _store(watch, builder))
        changes.replace(builder, "create_atomic_rmw", _update(watch, builder))
        changes.replace(builder, "create_atomic_cas", _compare(watch, builder))
        replaced = {**doubtful(watch, builder), **without_nan(builder)}
        replaced["create_dot"] = _dot(watch, replaced["create_dot"])
        for name, method in replaced.items():
            changes.replace(builder, name, method)
        # Compiled kernels, on a machine with a GPU, are interpreted for once.
        for name, method in interpreted().items():
            changes.replace(jit.JITFunction, name, method)
        changes.replace(autotuner.Autotuner, "run", untimed(autotuner.Autotuner.run))
        index = with_index(interpreter._patch_lang_tensor)
        changes.replace(interpreter, "_patch_lang_tensor", index)
        # A GPU says nothing of an overflow or a NaN, and what nobody wrote may be one.
        with np.errstate(all="ignore"):
            yield
    finally:
        changes.undo()


def _watch_launches(
    watch: Watch, changes: _Changes, executor: Any, builder: Any
) -> None:
    """Put a launch's tensors between guards, and let what was written out again."""
    copy_in, copy_out = executor._init_args_hst, executor._restore_args_dev
    set_grid = builder.set_grid_dim
    running: list[tuple[GuardedArguments, Any, Any]] = []

    def copied_in(self: Any, arguments: Any, named: Any) -> Any:
        hosted, hosted_named = copy_in(self, arguments, named)
        guarded = GuardedArguments(
            self.arg_names, arguments, named, hosted, hosted_named, watch.unwritten
        )
        running[:] = [(guarded, hosted, hosted_named)]
        watch.launched(self.fn, self.fn.__name__, guarded.buffers)
        return guarded.arguments, guarded.named

    def copied_out(
        self: Any, arguments: Any, guards: Any, named: Any, named_guards: Any
    ) -> None:
        guarded, hosted, hosted_named = running.pop()
        guarded.copy_back()
        copy_out(self, arguments, hosted, named, hosted_named)

    def sized(*grid: int) -> None:
        watch.sized((grid[0], grid[1], grid[2]))
        set_grid(*grid)

    changes.replace(executor, "_init_args_hst", copied_in)
    changes.replace(executor, "_restore_args_dev", copied_out)
    changes.replace(builder, "set_grid_dim", sized)


def _checked(
    watch: Watch, builder: Any, op: Op, pointers: Any, mask: Any
) -> np.ndarray:
    x, y, z = builder.grid_idx
    width = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
    # A block pointer's mask is a bare array.
    lanes = mask if isinstance(mask, np.ndarray) else mask.data
    program = (int(x), int(y), int(z))
    return watch.check(op, pointers.data, lanes, width, program)


def _mask(lanes: np.ndarray) -> Any:
    """Return a mask of the interpreter's own kind that holds these lanes."""
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    return TensorHandle(np.ascontiguousarray(lanes), tl.int1)


def _load(watch: Watch, builder: Any) -> Callable[..., Any]:
    original = builder.create_masked_load

    def load(pointers: Any, mask: Any, *more: Any, **named: Any) -> Any:
        lanes = _checked(watch, builder, "load", pointers, mask)
        return original(pointers, _mask(lanes), *more, **named)

    return load


def _store(watch: Watch, builder: Any) -> Callable[..., Any]:
    original = builder.create_masked_store

    def store(pointers: Any, value: Any, mask: Any, *more: Any, **named: Any) -> Any:
        lanes = _checked(watch, builder, "store", pointers, mask)
        return original(pointers, value, _mask(lanes), *more, **named)

    return store


def _dot(watch: Watch, original: Callable[..., Any]) -> Callable[..., Any]:
    def dot(a: Any, b: Any, *more: Any) -> Any:
        product = original(a, b, *more)
        bits = max(a.dtype.primitive_bitwidth, b.dtype.primitive_bitwidth)
        watch.multiplied(int(product.data.size * a.data.shape[-1]), int(bits))
        return product

    return dot


def _update(watch: Watch, builder: Any) -> Callable[..., Any]:
    original = builder.create_atomic_rmw

    def update(kind: Any, pointers: Any, value: Any, mask: Any, *more: Any) -> Any:
        lanes = _checked(watch, builder, "atomic", pointers, mask)
        return original(kind, pointers, value, _mask(lanes), *more)

    return update


def _compare(watch: Watch, builder: Any) -> Callable[..., Any]:
    original = builder.create_atomic_cas

    def compare(pointers: Any, expected: Any, value: Any, *more: Any) -> Any:
        from triton.runtime.interpreter import TensorHandle

        every = np.ones(pointers.data.shape, bool)
        lanes = _checked(watch, builder, "atomic", pointers, every)
        if lanes.all():
            return original(pointers, expected, value, *more)
        # It takes no mask: hand it the lanes that may go through.
        parts = [
            TensorHandle(np.broadcast_to(h.data, lanes.shape)[lanes], h.dtype)
            for h in (pointers, expected, value)
        ]
        found = np.zeros(lanes.shape, expected.data.dtype)
        if lanes.any():
            found[lanes] = original(*parts, *more).data
        return TensorHandle(found, expected.dtype.scalar)

    return compare
