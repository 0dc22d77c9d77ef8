"""The host compiler's messages, on the author's lines and in the author's words."""

from __future__ import annotations

import re

from kernelwright.errors import CompileError, Diagnostic

_MESSAGE = re.compile(
    r"^(?P<file>[^:\n]+):(?P<line>\d+):(?:(?P<column>\d+):)? "
    r"(?P<severity>fatal error|error|warning|note): (?P<text>.*)$"
)
_REQUIRED = re.compile(
    r"^(?P<file>[^:\n]+):(?P<line>\d+):(?:(?P<column>\d+):)? +(?:recursively )?"
    r"required (?:from|by)"
)
_OPTION = re.compile(r" \[-[WD][^\]]*\]$|,? \[-fpermissive\]$")


def parse(log: str, filename: str) -> tuple[Diagnostic, ...]:
    """Read a compiler's log; keep what concerns the author's file.

    An error inside one of the emulator's headers is put on the author's line that led
    there, where the compiler names one.
    """
    found: list[Diagnostic] = []
    from_author: tuple[int, int] | None = None
    orphan: tuple[str, str] | None = None
    for text in log.splitlines():
        required = _REQUIRED.match(text)
        if required is not None:
            if required["file"] == filename:
                from_author = int(required["line"]), int(required["column"] or 0)
            continue
        match = _MESSAGE.match(text)
        if match is None:
            continue
        severity = match["severity"].replace("fatal ", "")
        message = _OPTION.sub("", match["text"])
        if match["file"] == filename:
            place = int(match["line"]), int(match["column"] or 0)
            if orphan is not None and severity == "note":
                found.append(Diagnostic(orphan[0], *place, orphan[1]))
            else:
                found.append(Diagnostic(severity, *place, message))
            orphan = None
        elif severity != "note":
            if from_author is not None:
                found.append(Diagnostic(severity, *from_author, message))
                orphan = None
            else:
                orphan = severity, message
        if severity != "note":
            from_author = None
    if orphan is not None and orphan[0] == "error":
        found.append(Diagnostic(orphan[0], 0, 0, orphan[1]))
    return tuple(dict.fromkeys(found))


def compile_error(
    source: str, diagnostics: tuple[Diagnostic, ...], log: str, name: str
) -> CompileError:
    """Make the exception of a failed compilation, with a mend where one is known."""
    errors = [d for d in diagnostics if d.severity == "error"]
    if not errors:
        return CompileError(f"{name} does not compile:\n{log[-2000:]}", (), log)
    lines = source.splitlines()
    parts = [f"{name} does not compile"]
    for error in errors[:5]:
        parts.append(_show(error, lines))
    if len(errors) > 5:
        parts.append(f"… and {len(errors) - 5} more")
    return CompileError("\n".join(parts), diagnostics, log)


def _show(error: Diagnostic, lines: list[str]) -> str:
    head = f"line {error.line}: {error.message}" if error.line else error.message
    if not 0 < error.line <= len(lines):
        return head
    text = lines[error.line - 1].expandtabs()
    shown = f"{head}\n    {text}"
    if error.column:
        shown += "\n    " + " " * (error.column - 1) + "^"
    return shown
