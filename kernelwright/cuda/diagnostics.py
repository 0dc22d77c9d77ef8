"""Turn a compiler's log into messages on the author's own lines."""

from __future__ import annotations

import re

from kernelwright.errors import CompileError, Diagnostic

_NVRTC = re.compile(
    r"^(?P<file>[^\n(]*)\((?P<line>\d+)\): "
    r"(?:catastrophic )?(?P<severity>error|warning)(?: #[\w-]+)?: (?P<message>.*)$",
    re.MULTILINE,
)
_CARET = re.compile(r"^ *\^ *$")


def parse_nvrtc(log: str, filename: str) -> tuple[Diagnostic, ...]:
    """Read NVRTC's log; a message in a header is kept without a line."""
    found: list[Diagnostic] = []
    for match in _NVRTC.finditer(log):
        mine = match["file"] == filename
        message = match["message"]
        found.append(
            Diagnostic(
                severity=match["severity"],
                line=int(match["line"]) if mine else 0,
                column=_column(log, match.end()) if mine else 0,
                message=message if mine else f"{match['file']}: {message}",
            )
        )
    return tuple(found)


def _column(log: str, end: int) -> int:
    """Find the caret of a message: NVRTC indents the quoted line by two."""
    for line in log[end:].splitlines()[1:6]:
        if _CARET.match(line):
            return max(1, line.index("^") - 1)
    return 0


def compile_error(
    source: str, filename: str, diagnostics: tuple[Diagnostic, ...], log: str
) -> CompileError:
    """Build the exception whose text quotes each faulty line with a caret."""
    errors = [d for d in diagnostics if d.severity == "error"]
    shown = [quote(source, filename, d) for d in errors[:5]]
    more = f"\n(and {len(errors) - 5} more)" if len(errors) > 5 else ""
    count = f"{len(errors)} error{'s' if len(errors) != 1 else ''}"
    text = "\n".join(shown) + more if shown else log.strip()
    return CompileError(
        f"{filename} does not compile, {count}:\n{text}", errors_of(diagnostics), log
    )


def errors_of(diagnostics: tuple[Diagnostic, ...]) -> tuple[Diagnostic, ...]:
    """Keep the errors first, then the rest, each in the compiler's order."""
    return tuple(sorted(diagnostics, key=lambda d: d.severity != "error"))


def quote(source: str, filename: str, diagnostic: Diagnostic) -> str:
    """Show a message with its source line and a caret below the column."""
    if not diagnostic.line:
        return f"{diagnostic.severity}: {diagnostic.message}"
    lines = source.splitlines()
    head = f"line {diagnostic.line}: {diagnostic.message}"
    if diagnostic.line > len(lines):
        return head
    text = lines[diagnostic.line - 1]
    margin = f"{diagnostic.line:>5} | "
    if not diagnostic.column:
        return f"{head}\n{margin}{text}"
    # Tabs stay tabs, so that the caret stands below its character.
    before = re.sub(r"[^\t]", " ", text[: diagnostic.column - 1])
    return f"{head}\n{margin}{text}\n{' ' * 5} | {before}^"
