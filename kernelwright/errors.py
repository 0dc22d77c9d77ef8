"""The exceptions of the workbench: what was got, what was wanted, how to mend it."""

from __future__ import annotations

from dataclasses import dataclass


class KernelwrightError(Exception):
    """Base of every exception that the workbench raises on purpose."""


@dataclass(frozen=True)
class Diagnostic:
    """One message of a compiler, placed on the author's own line.

    Args:
        severity: ``error``, ``warning`` or ``note``.
        line: 1-based line of the source that was handed to ``compile``; 0 where
            the compiler named none.
        column: 1-based column, 0 where unknown.
        message: the compiler's words, without file name and position.
    """

    severity: str
    line: int
    column: int
    message: str


class CompileError(KernelwrightError):
    """The source does not compile; ``diagnostics`` say where and why."""

    def __init__(
        self, message: str, diagnostics: tuple[Diagnostic, ...] = (), log: str = ""
    ) -> None:
        super().__init__(message)
        self.diagnostics = diagnostics
        self.log = log


class ArgumentError(KernelwrightError, TypeError):
    """A launch was given arguments that the kernel's signature does not take."""


class LaunchError(KernelwrightError):
    """The launch itself is impossible: its grid, block or shared memory."""


class ToolchainError(KernelwrightError):
    """Something that compiling or running needs is not on this machine."""


class KernelWarning(UserWarning):
    """A kernel came to its end, but did something that it had better not do."""


class KernelFault(KernelwrightError):
    """A kernel did something that ends it: a wild access, a failed assert.

    Args:
        message: one paragraph that names the mistake and the mend.
        kind: ``memory``, ``stack overflow``, ``division by zero``, ``assert``,
            ``trap``, ``illegal instruction``, ``barrier`` or ``sync mask``.
        line: 1-based source line, 0 where it could not be found.
        block, thread: the indices of the thread that did it, where known.

    ``printed`` holds what the kernel's printf had written by then.
    """

    printed: str = ""

    def __init__(
        self,
        message: str,
        *,
        kind: str,
        line: int = 0,
        block: tuple[int, int, int] | None = None,
        thread: tuple[int, int, int] | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.line = line
        self.block = block
        self.thread = thread


class KernelDeadlock(KernelFault):
    """Every thread of a block waits for another; the message says who, where."""


class KernelTimeout(KernelFault):
    """A launch passed its deadline; the message says where its threads were."""


class TraceProblem(KernelwrightError):
    """A traced launch did something that it must not; ``problems`` say what."""

    def __init__(self, message: str, problems: tuple[object, ...] = ()) -> None:
        super().__init__(message)
        self.problems = problems


class RankError(KernelwrightError):
    """A rank of ``kw.ranks`` raised, or ended before it returned.

    Args:
        message: what went wrong, and on which rank.
        rank: which.
        line: 1-based line of the author's code, 0 where unknown.
    """

    def __init__(self, message: str, rank: int, line: int = 0) -> None:
        super().__init__(message)
        self.rank = rank
        self.line = line


class RankDeadlock(RankError):
    """No rank goes on, or not in time; the message says who waits for whom."""
