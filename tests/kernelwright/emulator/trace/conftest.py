"""What the trace's tests share: trace a source on tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import kernelwright as kw
from kernelwright.trace import TraceReport


@pytest.fixture
def trace() -> Callable[..., TraceReport]:
    """Return a function that compiles a source and traces its kernel, all blocks."""

    def run(
        source: str,
        kernel: str,
        grid: Any,
        block: Any,
        *arguments: Any,
        shared: int = 0,
        **options: Any,
    ) -> TraceReport:
        module = kw.cuda.compile(source, backend="emulator")
        tracer = module[kernel].trace.options(**{"blocks": "all", **options})
        return tracer[grid, block, shared](*arguments)

    return run
