"""How a trace is asked for: ``kernel.trace[grid, block](...)``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from kernelwright.errors import LaunchError

if TYPE_CHECKING:
    from kernelwright.cuda.kernel import Kernel, Launcher
    from kernelwright.trace.report import TraceReport

# How many blocks are run where nobody says: enough to see what differs between the
# first, the last and those in between.
SAMPLED = 4


@dataclass(frozen=True)
class Tracer:
    """A kernel whose launches are recorded; ``kernel.trace`` is one.

    Args:
        kernel: what is launched.
        blocks: ``all``, or how many are run, spread over the grid.
        unwritten: parameters, by name or position from 0, whose memory counts as never
            written: reading it is a problem.
        flops: floating-point operations of the whole launch, for its intensity.
    """

    kernel: Kernel
    blocks: Literal["all"] | int = SAMPLED
    unwritten: tuple[str | int, ...] = ()
    flops: int | None = None

    def options(
        self,
        *,
        blocks: Literal["all"] | int | None = None,
        unwritten: Sequence[str | int] | None = None,
        flops: int | None = None,
    ) -> Tracer:
        """Return a tracer with some of its settings changed."""
        counted = isinstance(blocks, int) and blocks > 0
        if not (blocks is None or blocks == "all" or counted):
            raise LaunchError(
                f"trace.options: blocks is {blocks!r}; wanted 'all' or a whole number, "
                "1 or more."
            )
        return replace(
            self,
            blocks=self.blocks if blocks is None else blocks,
            unwritten=self.unwritten if unwritten is None else tuple(unwritten),
            flops=self.flops if flops is None else flops,
        )

    @property
    def on_ranks(self) -> RanksTracer:
        """Record a launch of several ranks, as ``kernel.on_ranks`` makes it."""
        return RanksTracer(self)

    def __getitem__(self, launch: tuple[Any, ...]) -> TraceLauncher:
        """Choose grid, block and (optionally) bytes of dynamic shared memory."""
        return TraceLauncher(self, self.kernel[launch])

    def __call__(self, *arguments: Any) -> None:
        """Refuse a call without a launch, and say how it is written."""
        name = self.kernel.name
        raise LaunchError(
            f"{name}.trace(...) has no grid and no block: write "
            f"{name}.trace[blocks, 256](...)."
        )


@dataclass(frozen=True)
class TraceLauncher:
    """A traced kernel with its grid and block chosen; call it with the arguments."""

    tracer: Tracer
    launcher: Launcher

    def __call__(self, *arguments: Any) -> TraceReport:
        """Launch on the emulator and return what happened; tensors on the CPU.

        Raises:
            ArgumentError: an argument that the kernel does not take.
            CompileError: the source does not compile for the emulator.
            LaunchError: a launch that no GPU takes.
        """
        from kernelwright.trace.build import trace

        return trace(self.tracer, self.launcher, (arguments,))


@dataclass(frozen=True)
class RanksTracer:
    """A traced kernel of which each rank launches its own; ``trace.on_ranks`` is one.

    Args:
        tracer: its settings; of ranks, which wait for each other, all blocks are run.
    """

    tracer: Tracer

    def __getitem__(self, launch: tuple[Any, ...]) -> RanksTraceLauncher:
        """Choose a rank's grid and block, and bytes of dynamic shared memory."""
        return RanksTraceLauncher(self.tracer, self.tracer.kernel[launch])


@dataclass(frozen=True)
class RanksTraceLauncher:
    """A traced kernel with each rank's grid and block; call it with all arguments."""

    tracer: Tracer
    launcher: Launcher

    def __call__(self, *ranks: Sequence[Any]) -> TraceReport:
        """Launch on the emulator with a list of arguments for each rank.

        Raises:
            ArgumentError, CompileError, LaunchError: as of a launch.
        """
        from kernelwright.cuda.kernel import checked_ranks
        from kernelwright.trace.build import trace

        given = checked_ranks(self.tracer.kernel.name, ranks)
        return trace(self.tracer, self.launcher, given)
