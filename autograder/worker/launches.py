"""How many Triton kernels ran while an answer was called.

For a learner who left the launch out; it is no wall against one who fakes it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass
class Launches:
    """What was launched so far."""

    count: int = 0


@contextmanager
def counted() -> Iterator[Launches]:
    """Count launches that had at least one program, compiled or interpreted."""
    seen = Launches()
    if "triton" not in sys.modules:
        yield seen
        return
    from triton.runtime import interpreter, jit

    builder = interpreter.interpreter_builder
    begin_program, run = builder.set_grid_idx, jit.JITFunction.run

    def begun(x: int, y: int, z: int) -> None:
        # A launch's first program: a grid of none has no such program.
        seen.count += x == y == z == 0
        begin_program(x, y, z)

    def ran(self: Any, *arguments: Any, warmup: bool, **options: Any) -> Any:
        compiled = run(self, *arguments, warmup=warmup, **options)
        seen.count += not warmup
        return compiled

    # On the object, over the class's: taken off again, that is back.
    builder.set_grid_idx = begun
    jit.JITFunction.run = ran
    try:
        yield seen
    finally:
        del builder.set_grid_idx
        jit.JITFunction.run = run
