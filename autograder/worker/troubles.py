"""What went wrong in a worker, in a form that crosses the boundary as JSON."""

from __future__ import annotations

import re
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from keyword import iskeyword
from pathlib import Path
from typing import Any

from autograder.worker.entry import MissingName, WrongReturn

_LONGEST = 4000


@dataclass(frozen=True)
class Trouble:
    """One thing that went wrong.

    Args:
        kind: ``compile``, ``syntax``, ``missing``, ``exception``, ``return``,
            ``arguments``, ``launch``, ``fault``, ``timeout``, ``toolchain`` or
            ``exit``.
        message: for the learner.
        line: 1-based line of the exercise's cell, 0 where unknown.
        text: that line's text.
        cell: the exercise whose cell it is, where it is another's.
        diagnostics: a compiler's messages: severity, line, column, message.
    """

    kind: str
    message: str
    line: int = 0
    text: str = ""
    cell: str = ""
    diagnostics: list[dict[str, Any]] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON types."""
        return asdict(self)


class Told(Exception):
    """Raised by the grader's own code, where it knows the trouble already."""

    def __init__(self, trouble: Trouble) -> None:
        super().__init__(trouble.message)
        self.trouble = trouble


def describe(error: BaseException, files: Mapping[str, str]) -> Trouble:
    """Put an exception into words, on the learner's own line where it has one."""
    from kernelwright import errors

    if isinstance(error, Told):
        return error.trouble
    message = _said(error)
    if isinstance(error, SystemExit):
        # Ending the process is the learner's doing only as a mistake: say so.
        return Trouble("exit", f"the cell called exit ({error.code!r})")
    if isinstance(error, MissingName):
        return Trouble("missing", message)
    if isinstance(error, WrongReturn):
        return Trouble("return", message)
    if isinstance(error, errors.CompileError):
        listed = [
            {
                "severity": d.severity,
                "line": d.line,
                "column": d.column,
                "message": d.message[:_LONGEST],
            }
            for d in error.diagnostics[:20]
        ]
        first = next((d for d in error.diagnostics if d.severity == "error"), None)
        return Trouble(
            "compile", message, line=first.line if first else 0, diagnostics=listed
        )
    if isinstance(error, errors.ToolchainError):
        return Trouble("toolchain", message)
    if isinstance(error, errors.KernelTimeout):
        return Trouble("timeout", message, line=error.line)
    if isinstance(error, errors.KernelFault):
        return Trouble("fault", message, line=error.line)
    if isinstance(error, errors.LaunchError):
        return Trouble("launch", message)
    if isinstance(error, SyntaxError) and (file := error.filename or "") in files:
        return Trouble(
            "syntax",
            f"{type(error).__name__}: {error.msg}",
            line=error.lineno or 0,
            text=(error.text or "").rstrip()[:200],
            cell=files[file],
        )
    found = next((says for said, says in _CUDA_ERRORS.items() if said in message), "")
    if found:
        return Trouble("fault", found)
    return _exception(error, message, files)


# What CUDA says of a kernel that went astray, and what a learner can do about it.
_CUDA_ERRORS = {
    "illegal memory access": "the kernel touched memory that is not its own (CUDA: "
    "an illegal memory access). Compare every index with the size of its array.",
    "misaligned address": "the kernel read or wrote a wide type at an address that is "
    "no multiple of its size (CUDA: misaligned address).",
    "unspecified launch failure": "the kernel failed while it ran (CUDA: unspecified "
    "launch failure); most often a wild index or a stack that overflowed.",
    "device-side assert": "an assert in the kernel failed (CUDA: device-side assert).",
}


# What Triton says of a launch that is written wrongly, in its interpreter or compiled.
_TRITON_LAUNCHES = {
    "no attribute 'grid_idx'": "the kernel was called like a function, without a grid",
    "outside of the scope of a kernel": "the kernel was called like a function, "
    "without a grid",
    "object of type 'int' has no len()": "the grid is a number; wanted a tuple",
    'can only concatenate list (not "tuple")': "the grid is a list; wanted a tuple",
}


def _exception(error: BaseException, message: str, files: Mapping[str, str]) -> Trouble:
    from kernelwright.errors import ArgumentError

    if isinstance(error, NotImplementedError) and message == "NotImplementedError":
        message = "nothing is written here yet"
    inner = _innermost(error, files)
    if inner is not error:
        message = _said(inner)
    text = f"{type(inner).__name__}: {message}{_mend(inner)}"
    launch = _wrong_launch(error, message)
    if launch:
        inner = error
    for frame in reversed(traceback.extract_tb(inner.__traceback__)):
        if frame.filename in files:
            return Trouble(
                "exception",
                f"{launch}: write {_called(frame.line)}[(programs,)](...)."
                if launch
                else text,
                line=frame.lineno or 0,
                text=(frame.line or "")[:200],
                cell=files[frame.filename],
            )
    kind = "arguments" if isinstance(error, ArgumentError) else "exception"
    return Trouble(kind, text)


def _said(error: BaseException) -> str:
    """Return an exception's text; its own code makes it, and may itself raise."""
    with suppress(Exception):
        return str(error)[:_LONGEST] or type(error).__name__
    return type(error).__name__


# What a notebook has and a graded cell has not, and what to do about it.
_NOTEBOOKS = {
    "check": "Take check() out of this cell: it has one of its own.",
    "hint": "Take hint() out of this cell: it has one of its own.",
    "display": "display() is the notebook's: call it in another cell.",
    "get_ipython": "An exercise's cell is plain Python.",
}
_ELSEWHERE = "If another cell defines it, move that here: a cell is graded by itself."


def _mend(error: BaseException) -> str:
    """Say how a cell that is graded by itself differs from one in a notebook."""
    if isinstance(error, NameError) and not isinstance(error, UnboundLocalError):
        return f". {_NOTEBOOKS.get(str(error.name), _ELSEWHERE)}"
    if isinstance(error, EOFError) and "reading a line" in _said(error):
        return ". Nobody answers input() while a cell is graded: remove it."
    return ""


def _innermost(error: BaseException, files: Mapping[str, str]) -> BaseException:
    """Return what Triton wrapped: its own error shows the launch, not the line.

    Each function that calls another wraps once more, so the deepest error that passed
    a line of the learner's is the one that says what was wrong there.
    """
    if not type(error).__module__.startswith("triton"):
        return error
    deepest, cause, seen = error, error.__cause__, {id(error)}
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        frames = traceback.extract_tb(cause.__traceback__)
        if any(frame.filename in files for frame in frames):
            deepest = cause
        cause = cause.__cause__
    return deepest


def _wrong_launch(error: BaseException, message: str) -> str:
    """Say what is wrong with a Triton launch; '' if it is something else."""
    last = error
    while last.__cause__ is not None:
        last = last.__cause__
    frames = traceback.extract_tb(last.__traceback__)
    if not frames or "triton" not in Path(frames[-1].filename).parts:
        return ""
    said = f"{message} {last}"
    return next((says for begin, says in _TRITON_LAUNCHES.items() if begin in said), "")


def _called(line: str | None) -> str:
    """Return the name that a line launches."""
    names = re.findall(r"([A-Za-z_]\w*)\s*[\[(]", line or "")
    return next((name for name in names if not iskeyword(name)), "kernel")
