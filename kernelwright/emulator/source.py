"""What the emulator changes in an author's text: as little as C++ allows.

Every change keeps each character on its line, so that the compiler's lines are the
author's own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_TOKENS = re.compile(
    r"//(?:\\\n|[^\n])*"  # a comment to the end of the line
    r"|/\*.*?(?:\*/|\Z)"  # a comment in between
    r'|R"(?P<delimiter>[^()\\\s]{0,16})\(.*?\)(?P=delimiter)"'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9A-Za-z_])'(?:\\.|[^'\\\n])*'",
    re.DOTALL,
)
_NAMESPACE = re.compile(r'\bnamespace\b|\bextern\s*""?')
_DYNAMIC = re.compile(
    r"\bextern\b(?P<between>[^;{}()]*?)\b__shared__\b|"
    r"\b__shared__\b(?P<between2>[^;{}()=]*?)\bextern\b"
)
ALIGNMENT = re.compile(r"\b(?:alignas|__align__)\s*\((?:[^()]|\([^()]*\))*\)")
# nvcc takes the alignment on either side of __shared__, C++ only before thread_local.
_SHARED_ALIGNED = re.compile(
    r"\b__shared__\b(?P<gap>\s+)(?P<alignment>alignas\s*\((?:[^()]|\([^()]*\))*\))"
)
_INITIALISED = re.compile(r"\b__shared__\b[^;{}()]*?[\w\]]\s*(?P<sign>=)(?!=)")
_ASM = re.compile(r"\b(?:asm|__asm__|__asm)\b")


@dataclass(frozen=True)
class Prepared:
    """A source made ready for the host's compiler.

    Args:
        text: the changed source, line for line the author's.
        masked: the author's source with comments and strings blanked.
        has_global_dynamic: whether dynamic shared memory is declared outside of
            functions; such a name is kept in thread-local storage.
    """

    text: str
    masked: str
    has_global_dynamic: bool


def mask(source: str) -> str:
    """Blank comments and the insides of strings; keep every newline and position."""

    def blank(match: re.Match[str]) -> str:
        text = match.group()
        if text[0] in "\"'R":
            inside = re.sub(r"[^\n]", " ", text[1:-1])
            return '"' + inside + '"'
        return spaces(match)

    return _TOKENS.sub(blank, source)


def initialised_shared(masked: str) -> int | None:
    """Return the position of a ``__shared__`` variable's initialiser, which is none."""
    match = _INITIALISED.search(masked)
    return match.start("sign") if match else None


def unclosed_brace(masked: str) -> int | None:
    """Return the position of the last brace that is opened and never closed."""
    _, opened = braces(masked)
    return opened[-1] if opened else None


def braces(masked: str) -> tuple[dict[int, int], list[int]]:
    """Return where each brace is closed that is, and the positions of the others."""
    opened: list[int] = []
    closed: dict[int, int] = {}
    for match in re.finditer(r"[{}]", masked):
        if match.group() == "{":
            opened.append(match.start())
        elif opened:
            closed[opened.pop()] = match.start()
    return closed, opened


def line_of(text: str, position: int) -> int:
    """Return the 1-based line of a position."""
    return text.count("\n", 0, position) + 1


def prepare(source: str) -> Prepared:
    """Rewrite what C++ has no form for: ``extern __shared__`` and inline ``asm``."""
    masked = mask(source)
    edits: list[tuple[int, int, str]] = []
    has_global = False
    for match in _DYNAMIC.finditer(masked):
        end = masked.find(";", match.end())
        if end < 0:
            continue
        inside = _is_inside_function(masked, match.start())
        declaration = _blank_keywords(masked[match.start() : end])
        edit = _reference(declaration, inside)
        if edit is not None:
            edits.append((match.start(), end, edit))
            has_global = has_global or not inside
    taken = [(start, end) for start, end, _ in edits]
    for match in _SHARED_ALIGNED.finditer(masked):
        if not any(start <= match.start() < end for start, end in taken):
            swapped = f"{match['alignment']}{match['gap']}__shared__"
            edits.append((match.start(), match.end(), swapped))
    for match in _ASM.finditer(masked):
        edits.append((match.start(), match.end(), "kwemu_inline_asm"))
    text = source
    for start, end, replacement in sorted(edits, reverse=True):
        text = text[:start] + replacement + text[end:]
    return Prepared(text, masked, has_global)


def _blank_keywords(declaration: str) -> str:
    """Leave of a declaration its type, its name and its bounds."""
    text = ALIGNMENT.sub(spaces, declaration)
    return re.sub(r"\b(?:extern|__shared__|static)\b", spaces, text)


def spaces(match: re.Match[str]) -> str:
    """Blank what was found; keep every newline and position."""
    return re.sub(r"[^\n]", " ", match.group())


def _reference(declaration: str, inside: bool) -> str | None:
    """Write ``T name[]…`` as a reference to the block's dynamic shared memory."""
    found = re.match(
        r"(?s)(?P<type>.*?)\b(?P<name>\w+)\s*(?P<bounds>(?:\[[^]]*\]\s*)+)$",
        declaration,
    )
    if found is None:
        return None
    kind, name, bounds = found["type"], found["name"], found["bounds"]
    alias = f"kwemu_type_of_{name}"
    storage = "" if inside else "static thread_local "
    # The type is written once, with its line breaks; the reference follows behind it.
    return (
        f"typedef {kind.strip(' ')} {alias}{bounds.rstrip()}; "
        f"{storage}{alias}& {name} = "
        f"*reinterpret_cast<{alias}*>(kwemu_dynamic_shared())"
    )


def _is_inside_function(masked: str, position: int) -> bool:
    """Whether any brace that is open here is not a namespace's."""
    open_braces: list[bool] = []
    begin = 0
    for match in re.finditer(r"[{};]", masked[:position]):
        if match.group() == "{":
            head = masked[begin : match.start()]
            open_braces.append(_NAMESPACE.search(head) is None)
        elif match.group() == "}" and open_braces:
            open_braces.pop()
        begin = match.end()
    return any(open_braces)
