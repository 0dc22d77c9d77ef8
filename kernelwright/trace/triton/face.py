"""How a Triton kernel's trace is asked for: ``kw.trace_triton(kernel)[grid](...)``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kernelwright.errors import ArgumentError, LaunchError
from kernelwright.trace.triton.report import TritonReport
from kernelwright.trace.unwritten import marking_empty_tensors


def trace_triton(function: Any) -> TritonTracer:
    """Record what Triton kernels do to memory, under Triton's interpreter.

    Args:
        function: a kernel, then called ``trace_triton(kernel)[grid](...)``; or a
            Python function that launches kernels, called ``trace_triton(fn)(...)``.

    Returns:
        What is called as the kernel or the function would be, and returns a report.
        Tensors hold what the kernel wrote afterwards, as after a launch.

    Raises:
        ArgumentError: neither a Triton kernel nor a Python function.

    Cost: the interpreter's own time, and about 0.2 us for each lane of each load and
        store (a 512^3 matmul: 0.7 s instead of 0.3); a copy of the tensors, and up
        to 4 MB kept of each access.
    """
    if kernel_function(function) is None and not inspect.isroutine(function):
        raise ArgumentError(
            f"trace_triton got a {type(function).__name__}; wanted a @triton.jit "
            "kernel, or a function that launches some. A CUDA kernel has its own: "
            "kernel.trace[grid, block](...)."
        )
    return TritonTracer(function)


def kernel_function(kernel: Any) -> Callable[..., Any] | None:
    """Return the Python function inside a Triton kernel; None where there is none."""
    if not hasattr(kernel, "run") or not hasattr(kernel, "fn"):
        return None
    # An autotuned kernel is a kernel within a kernel.
    while hasattr(kernel, "fn"):
        kernel = kernel.fn
    return kernel if callable(kernel) else None


@dataclass(frozen=True)
class TritonTracer:
    """A kernel, or a function that launches kernels, whose accesses are recorded.

    Args:
        function: what is run.
        unwritten: the kernels' parameters, by name or position from 0, whose memory
            counts as never written: reading it is a problem.
    """

    function: Any
    unwritten: tuple[str | int, ...] = ()

    def options(self, *, unwritten: Sequence[str | int]) -> TritonTracer:
        """Return a tracer with its settings changed."""
        return replace(self, unwritten=tuple(unwritten))

    def __getitem__(self, grid: Any) -> TritonLauncher:
        """Choose the grid: whole numbers, or a function of the kernel's arguments."""
        name = _name(self.function)
        own = kernel_function(self.function)
        if own is None:
            raise LaunchError(
                f"{name} is a function, not a kernel, and chooses its grid itself: "
                f"write trace_triton({name})(...)."
            )
        names = list(inspect.signature(own).parameters)
        unknown = [
            u for u in self.unwritten if u not in names and u not in range(len(names))
        ]
        if unknown:
            raise ArgumentError(
                f"{name}: unwritten names {unknown[0]!r}, which is no parameter; "
                f"there are: {', '.join(names)}."
            )
        return TritonLauncher(self, (grid,) if isinstance(grid, int) else grid)

    def __call__(self, *arguments: Any, **named: Any) -> TritonReport:
        """Call a function and return what the kernels that it launches did."""
        name = _name(self.function)
        if kernel_function(self.function) is not None:
            raise LaunchError(
                f"{name} is a kernel and was given no grid: write "
                f"trace_triton({name})[(programs,)](...)."
            )
        return traced_call(self.function, arguments, named, unwritten=self.unwritten)


@dataclass(frozen=True)
class TritonLauncher:
    """A traced kernel with its grid chosen; call it with the kernel's arguments."""

    tracer: TritonTracer
    grid: Any

    def __call__(self, *arguments: Any, **named: Any) -> TritonReport:
        """Launch under the interpreter and return what happened.

        Raises:
            triton.runtime.errors.InterpreterError: what the kernel itself raised.
        """
        kernel = self.tracer.function
        return traced_call(
            kernel[self.grid],
            arguments,
            named,
            unwritten=self.tracer.unwritten,
            name=_name(kernel),
        )


def traced_call(
    function: Callable[..., Any],
    arguments: Sequence[Any],
    named: Mapping[str, Any] | None = None,
    *,
    unwritten: tuple[str | int, ...] = (),
    files: Mapping[str, str] | None = None,
    name: str = "",
) -> TritonReport:
    """Call what launches Triton kernels, and return what these did.

    Memory from ``torch.empty`` and its kin counts as never written.

    Args:
        function: what is called.
        arguments: it is given.
        named: those that it is given by name.
        unwritten: the kernels' parameters whose memory counts so, too.
        files: the author's files and their texts, which lines are counted in; by
            default those of the kernels.
        name: what is traced; by default the function's name.
    """
    from kernelwright.trace.triton.interpreter import watched
    from kernelwright.trace.triton.watch import Watch

    watch = Watch(set(files or ()), widening=files is None, unwritten=unwritten)
    with watched(watch), marking_empty_tensors():
        function(*arguments, **(named or {}))
    return watch.report(name or _name(function), files)


def _name(function: Any) -> str:
    own = kernel_function(function) or function
    return str(getattr(own, "__name__", "the function"))
