"""What the traced build changes in a prepared source, beyond what every build does."""

from __future__ import annotations

import re

_ALIGNED_STRUCT = re.compile(
    r"\bstruct\s+(?:alignas|__align__)\s*\((?:[^()]|\([^()]*\))*\)\s*(?P<name>\w+)"
    r"\s*\{"
)


def with_whole_structs(text: str, masked: str) -> str:
    """Have aligned structs copied in pieces of up to 16 bytes, as a GPU does.

    Such a struct can no longer be made from a list in braces: where a source does
    that, the compiler refuses it, and the unchanged text is built instead.
    """
    if len(text) != len(masked):
        masked = text
    for match in reversed(list(_ALIGNED_STRUCT.finditer(masked))):
        insertion = f" KWEMU_WHOLE({match['name']})"
        text = text[: match.end()] + insertion + text[match.end() :]
    return text
