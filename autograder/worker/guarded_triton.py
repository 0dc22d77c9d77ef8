"""Triton's interpreter, watched: every address is checked before it is touched.

The interpreter hands whole blocks of addresses to its builder's load, store and
atomic functions. While a function is watched these are ours: lanes that a mask turns
off count for nothing, lanes outside of every tensor that the kernel was given are
reported on the learner's line and turned off, the rest go through.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import numpy as np

from autograder.worker.run import place_arguments
from autograder.worker.wire import Header

_DID = {"load": "reads", "store": "writes", "atomic": "updates"}
_MOST_PROBLEMS = 20


@dataclass(frozen=True)
class _Buffer:
    """One tensor that a kernel was given: its name and the bytes it spans."""

    name: str
    low: int
    high: int
    size: int


@dataclass
class Watch:
    """What was seen while kernels ran.

    Args:
        files: the learner's files; a problem is put on the innermost line in one.
    """

    files: Mapping[str, str]
    launches: int = 0
    buffers: list[_Buffer] = field(default_factory=list)
    lines: dict[tuple[int, str, str], list[int]] = field(default_factory=dict)
    problems: dict[tuple[int, str, str], Header] = field(default_factory=dict)

    def launched(self, names: list[str], arguments: list[Any], more: Any) -> None:
        """Note the tensors of a launch."""
        self.launches += 1
        self.buffers = []
        for name, value in (*zip(names, arguments, strict=False), *more.items()):
            if hasattr(value, "data_ptr") and value.numel():
                size = value.element_size()
                steps = zip(value.shape, value.stride(), strict=True)
                last = sum((n - 1) * max(step, 0) for n, step in steps)
                low = value.data_ptr()
                self.buffers.append(_Buffer(name, low, low + (last + 1) * size, size))

    def check(self, op: str, pointers: Any, mask: Any) -> Any:
        """Record the lanes that are on; return which of them may go through."""
        at = np.asarray(pointers.data).astype(np.int64)
        on = np.broadcast_to(np.asarray(mask.data).astype(bool), at.shape)
        width = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        inside = np.zeros(at.shape, bool)
        line = self._line()
        for buffer in self.buffers:
            mine = (at >= buffer.low) & (at + width <= buffer.high)
            inside |= mine
            touched = int((mine & on).sum())
            if touched:
                seen = self.lines.setdefault((line, op, buffer.name), [0, 0])
                seen[0] += 1
                seen[1] += touched * width
        wild = on & ~inside
        if wild.any():
            self._wild(op, line, int(at[wild].reshape(-1)[0]), int(wild.sum()))
        return on & inside

    def _wild(self, op: str, line: int, address: int, count: int) -> None:
        nearest = min(
            self.buffers,
            key=lambda b: max(b.low - address, address - b.high, 0),
            default=None,
        )
        name = nearest.name if nearest else ""
        known = self.problems.get((line, op, name))
        if known is not None:
            known["count"] += count
            return
        if len(self.problems) >= _MOST_PROBLEMS:
            return
        program = _program()
        index = None
        where = "an address of no tensor"
        if nearest is not None:
            index = (address - nearest.low) // nearest.size
            elements = (nearest.high - nearest.low) // nearest.size
            where = f"{name}[{index}], outside of {name}, which has {elements} elements"
        self.problems[line, op, name] = {
            "kind": "out of bounds",
            "lines": [line],
            "block": list(program),
            "threads": [],
            "buffer": name,
            "index": index,
            "count": count,
            "message": f"line {line}: program {program} {_DID[op]} {where}: let the "
            "mask turn off the lanes that have no element",
        }

    def _line(self) -> int:
        frame: FrameType | None = sys._getframe(2)
        while frame is not None:
            if frame.f_code.co_filename in self.files:
                return frame.f_lineno
            frame = frame.f_back
        return 0

    def to_json(self) -> Header:
        """Return it as the trace of a kernel is returned."""
        return {
            "ok": True,
            "launches": self.launches,
            "barriers": 0.0,
            "lines": [
                {
                    "line": line,
                    "space": "global",
                    "op": op,
                    "requests": requests,
                    "sectors": 0,
                    "wavefronts": 0,
                    "bytes": moved,
                    "ideal_sectors": 0.0,
                    "ideal_wavefronts": 0.0,
                    "buffer": buffer,
                }
                for (line, op, buffer), (requests, moved) in self.lines.items()
            ],
            "problems": list(self.problems.values()),
        }


def trace_triton(
    entry: Any, header: Header, blobs: list[bytearray], files: Mapping[str, str]
) -> Header:
    """Call a function whose Triton kernels are watched, and describe what they did."""
    values, _ = place_arguments(header, blobs)
    watch = Watch(files)
    with _watched(watch):
        entry(*values)
    return watch.to_json()


@contextmanager
def _watched(watch: Watch) -> Iterator[None]:
    """Put the watch between the interpreter and memory, and take it out again."""
    from triton.runtime import interpreter

    builder = interpreter.interpreter_builder
    executor = interpreter.GridExecutor
    copy_in = executor._init_args_hst

    def copied_in(self: Any, arguments: Any, more: Any) -> Any:
        hosted, named = copy_in(self, arguments, more)
        watch.launched(self.arg_names, hosted, named)
        return hosted, named

    executor._init_args_hst = copied_in
    replaced = {
        "create_masked_load": _load(watch, builder.create_masked_load),
        "create_masked_store": _store(watch, builder.create_masked_store),
        "create_atomic_rmw": _update(watch, builder.create_atomic_rmw),
    }
    # On the object, over the class's: taken off again, those are back.
    for name, function in replaced.items():
        setattr(builder, name, function)
    try:
        yield
    finally:
        executor._init_args_hst = copy_in
        for name in replaced:
            delattr(builder, name)


def _load(watch: Watch, original: Callable[..., Any]) -> Callable[..., Any]:
    def load(pointers: Any, mask: Any, *rest: Any) -> Any:
        return original(
            pointers, _with(mask, watch.check("load", pointers, mask)), *rest
        )

    return load


def _store(watch: Watch, original: Callable[..., Any]) -> Callable[..., Any]:
    def store(pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        allowed = _with(mask, watch.check("store", pointers, mask))
        return original(pointers, value, allowed, *rest)

    return store


def _update(watch: Watch, original: Callable[..., Any]) -> Callable[..., Any]:
    def update(kind: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        allowed = _with(mask, watch.check("atomic", pointers, mask))
        return original(kind, pointers, value, allowed, *rest)

    return update


def _with(mask: Any, lanes: Any) -> Any:
    """Return a mask of the interpreter's own kind that holds these lanes."""
    return type(mask)(np.ascontiguousarray(lanes), mask.dtype)


def _program() -> tuple[int, int, int]:
    from triton.runtime import interpreter

    x, y, z = interpreter.interpreter_builder.grid_idx
    return int(x), int(y), int(z)
