"""How many Triton kernels ran while an answer was called, and on what.

For a learner who left the launch out, or had torch do the work; it is no wall against
one who changes the grader.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from autograder.worker.origins import Origins
from autograder.worker.real_triton import told_launch
from autograder.worker.wire import Header
from kernelwright.trace.triton.start import undefined, without_nan

MOST_KERNELS = 64
"""So many kinds of launches are compiled; one more is told, and seen as too many."""


@dataclass
class Launches:
    """What was launched so far, and where its numbers came from."""

    origins: Origins
    count: int = 0
    kernels: list[Header] = field(default_factory=list)
    # Whether a lane was masked in a load that does not say what it then holds.
    undefined: bool = False

    def note(self, kernel: Any, given: dict[str, Any]) -> None:
        """Note with what kinds of arguments a kernel is launched."""
        told = told_launch(kernel.fn, given)
        if told not in self.kernels and len(self.kernels) <= MOST_KERNELS:
            self.kernels.append(told)


@contextmanager
def counted(origins: Origins) -> Iterator[Launches]:
    """Count launches that had at least one program, compiled or interpreted."""
    seen = Launches(origins)
    if "triton" not in sys.modules:
        yield seen
        return
    from triton.runtime import interpreter, jit

    builder = interpreter.interpreter_builder
    begin_program, run = builder.set_grid_idx, jit.JITFunction.run
    interpret = interpreter.GridExecutor.__call__
    load = builder.create_masked_load

    def begun(x: int, y: int, z: int) -> None:
        # A launch's first program: a grid of none has no such program.
        seen.count += x == y == z == 0
        begin_program(x, y, z)

    def loaded(pointers: Any, mask: Any, other: Any, *options: Any) -> Any:
        if other is None:
            other = undefined(pointers)
            seen.undefined |= not mask.data.all()
        return load(pointers, mask, other, *options)

    def ran(self: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        given = _named(self, arguments, options)
        if not warmup:
            seen.note(self, given)
            origins.before(self.fn.__name__, given)
        grids = [grid]

        def sized(meta: Any) -> Any:
            grids.append(grid(meta))
            return grids[-1]

        size = sized if callable(grid) else grid
        compiled = run(self, *arguments, grid=size, warmup=warmup, **options)
        if not warmup:
            origins.after(given)
            # On a GPU, too, Triton passes over a grid with a side of 0.
            seen.count += all(grids[-1])
        return compiled

    def interpreted(self: Any, *arguments: Any, **options: Any) -> Any:
        given = _named(self, arguments, options)
        seen.note(self, given)
        origins.before(self.fn.__name__, given)
        result = interpret(self, *arguments, **options)
        origins.after(given)
        return result

    # On the object, over the class's: taken off again, that is back.
    mended = {"set_grid_idx": begun, "create_masked_load": loaded}
    mended |= without_nan(builder)
    for name, method in mended.items():
        setattr(builder, name, method)
    jit.JITFunction.run = ran
    interpreter.GridExecutor.__call__ = interpreted
    try:
        yield seen
    finally:
        for name in mended:
            delattr(builder, name)
        jit.JITFunction.run = run
        interpreter.GridExecutor.__call__ = interpret


def _named(
    kernel: Any, arguments: Sequence[Any], options: dict[str, Any]
) -> dict[str, Any]:
    """Return a launch's arguments by the names of the kernel's parameters."""
    return {**dict(zip(kernel.arg_names, arguments, strict=False)), **options}
