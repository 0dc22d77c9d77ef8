"""The host compiler's messages, on the author's lines and without our own names."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kernelwright.emulator.mends import about_asm, mend
from kernelwright.emulator.source import line_of, mask, unclosed_brace
from kernelwright.errors import CompileError, Diagnostic

# The name under which the tail with the kernels' entries is compiled, one a line.
TAIL = "<kernels>"

_MESSAGE = re.compile(
    r"^(?P<file>[^:\n]+):(?P<line>\d+):(?:(?P<column>\d+):)? "
    r"(?P<severity>fatal error|error|warning|note): (?P<text>.*)$"
)
_REQUIRED = re.compile(
    r"^(?P<file>[^:\n]+):(?P<line>\d+):(?:(?P<column>\d+):)? +(?:recursively )?"
    r"required (?:from|by)"
)
_INSTANTIATION = re.compile(
    r"in instantiation of|required (?:from|by)|in expansion of macro"
)
_OPTION = re.compile(r" \[-[WDf][^\]]*\]$")
_KERNEL = re.compile(
    r"\b__global__\b[^;{}()]*?(?:__launch_bounds__\s*\([^)]*\)\s*)?"
    r"[^;{}()]*?\b(\w+)\s*\("
)
_BY_VALUE = "parameters are passed by value"


def parse(log: str, filename: str, source: str = "") -> tuple[Diagnostic, ...]:
    """Read a compiler's log; keep what concerns the author's file.

    An error inside one of the emulator's headers is put on the author's line that led
    there, where the compiler names one.

    Args:
        log: what the compiler wrote to its standard error.
        filename: the name under which the author's file was compiled.
        source: the author's text.
    """
    lines = source.splitlines()
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
        if match is None or match["file"] == TAIL:
            continue
        severity = match["severity"].replace("fatal ", "")
        message = _OPTION.sub("", match["text"])
        if match["file"] == filename:
            place = int(match["line"]), int(match["column"] or 0)
            if severity == "note" and _INSTANTIATION.search(message):
                if orphan is not None:
                    found.append(Diagnostic(orphan[0], *place, orphan[1]))
                    orphan = None
                continue
            found.append(Diagnostic(severity, *place, message))
            orphan = None
        elif severity != "note":
            if from_author is not None:
                found.append(Diagnostic(severity, *from_author, message))
            else:
                orphan = severity, message
        if severity != "note":
            from_author = None
    return tuple(_in_our_words(found, lines))


def _in_our_words(found: list[Diagnostic], lines: list[str]) -> list[Diagnostic]:
    """Drop what follows from another error, and say the rest plainly."""
    asm = [d for d in found if "kwemu_inline_asm" in d.message]
    if asm:
        return [about_asm(d, lines) for d in {d.line: d for d in asm}.values()]
    result: list[Diagnostic] = []
    for diagnostic in found:
        # Consequences of an unknown type in a parameter list.
        if diagnostic.message.startswith("variable or field"):
            continue
        mended = mend(diagnostic, lines)
        if mended is None or mended in result:
            continue
        # One error a line and kind: a launch with <<<>>> gives two.
        same = [d for d in result if d.line == mended.line and d.severity == "error"]
        if mended.severity == "error" and same:
            continue
        result.append(mended)
    return result


def about_kernels(
    log: str, source: str, kernels: Sequence[str]
) -> tuple[Diagnostic, ...]:
    """Explain errors of the tail: a kernel that is not there, or cannot be launched."""
    masked = mask(source)
    opened = unclosed_brace(masked)
    if opened is not None:
        line = line_of(masked, opened)
        message = "the brace that is opened here is not closed"
        return (Diagnostic("error", line, 0, message),)
    defined = dict.fromkeys(
        name for name in _KERNEL.findall(masked) if not name.startswith("__")
    )
    found: list[Diagnostic] = []
    for number, kernel in enumerate(kernels):
        messages = [
            match.groupdict().get("text", "")
            for text in log.splitlines()
            if (match := _MESSAGE.match(text) or _REQUIRED.match(text))
            and match["file"] == TAIL
            and int(match["line"]) == number + 1
        ]
        called = re.escape(re.split(r"[<\s]", kernel)[0].split("::")[-1])
        place = re.search(rf"\b{called}\s*\(", masked)
        line = line_of(masked, place.start()) if place else 0
        head = masked[: place.start()].rsplit("__global__", 1)[-1] if place else ""
        text = "; ".join(m for m in messages if m and "expansion" not in m)
        if not messages:
            continue
        if place is None or called not in {re.escape(name) for name in defined}:
            listed = ", ".join(defined) or "none"
            message = f"the source has no kernel {kernel!r}; it has: {listed}"
        elif "void" not in head:
            message = f"the kernel {kernel} must return void"
        elif _BY_VALUE in log and "&" in _parameters(masked, place.end()):
            message = (
                f"the kernel {kernel} takes a reference: a kernel's {_BY_VALUE}; "
                "pass a pointer"
            )
        elif "template" in masked[: place.start()].rsplit(";", 1)[-1]:
            message = (
                f"{kernel} is a template: name an instance, such as {called}<float>"
            )
        elif len(re.findall(rf"\b{called}\s*\([^;{{]*\{{", masked)) > 1:
            message = f"{kernel} is defined more than once: give each its own name"
        else:
            message = f"{kernel} cannot be launched: {text}"
        found.append(Diagnostic("error", line, 0, message))
    return tuple(found)


def _parameters(masked: str, start: int) -> str:
    return masked[start : masked.find(")", start)]


def compile_error(
    source: str,
    log: str,
    filename: str,
    kernels: Sequence[str],
    shown: str,
) -> CompileError:
    """Make the exception of a failed compilation, with a mend where one is known."""
    diagnostics = parse(log, filename, source)
    errors = [d for d in diagnostics if d.severity == "error"]
    if not errors:
        diagnostics += about_kernels(log, source, kernels)
        errors = [d for d in diagnostics if d.severity == "error"]
    if not errors:
        return CompileError(f"{shown} does not compile:\n{log[-2000:]}", (), log)
    lines = source.splitlines()
    parts = [f"{shown} does not compile"]
    parts += [_show(error, lines) for error in errors[:5]]
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
