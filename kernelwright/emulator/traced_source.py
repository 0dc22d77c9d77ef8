"""What the traced build changes in a prepared source, beyond what every build does."""

from __future__ import annotations

import re

_ALIGNED_STRUCT = re.compile(
    r"\bstruct\s+(?:alignas|__align__)\s*\((?:[^()]|\([^()]*\))*\)\s*(?P<name>\w+)"
    r"\s*\{"
)
# KWEMU_WHOLE of kwemu/whole.h, which the author's text must not find defined.
_MOVE = "kwemu::move_whole<sizeof(name), alignof(name)>(this, &other);"
_WHOLE = (
    " name() = default;"
    f" __attribute__((always_inline)) name(const name& other) {{ {_MOVE} }}"
    " __attribute__((always_inline)) name& operator=(const name& other)"
    f" {{ {_MOVE} return *this; }}"
)


def with_whole_structs(text: str, masked: str) -> str:
    """Have aligned structs copied in pieces of up to 16 bytes, as a GPU does.

    Such a struct can no longer be made from a list in braces: where a source does
    that, the compiler refuses it, and the unchanged text is built instead.
    """
    if len(text) != len(masked):
        masked = text
    for match in reversed(list(_ALIGNED_STRUCT.finditer(masked))):
        insertion = _WHOLE.replace("name", match["name"])
        text = text[: match.end()] + insertion + text[match.end() :]
    return text
