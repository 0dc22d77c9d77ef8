"""One palette for every figure, and the few SVG pieces that they share.

Colours are CSS variables: a page that defines ``--kw-…`` for both themes decides,
and elsewhere the fallbacks hold, which read on white and on black.
"""

from __future__ import annotations

import html
import secrets

INK = "var(--kw-ink, currentColor)"
MUTED = "var(--kw-muted, #7f8794)"
LINE = "var(--kw-line, #9aa3b2)"
BAD = "var(--kw-bad, #e5484d)"
SERIES = (
    "var(--kw-accent, #3b82f6)",
    "var(--kw-warm, #f08c2e)",
    "var(--kw-good, #2fa36b)",
    "var(--kw-violet, #9b6cf0)",
    "var(--kw-yellow, #c9a227)",
)


def series(index: int) -> str:
    """Return the colour of one of several things that stand side by side."""
    return SERIES[index % len(SERIES)]


def unique(stem: str) -> str:
    """Return an id that no other figure of the page has."""
    return f"{stem}-{secrets.token_hex(4)}"


def text(x: float, y: float, label: str, **attributes: object) -> str:
    """Return one SVG text element; attribute names take ``_`` for ``-``."""
    return f'<text x="{x:g}" y="{y:g}"{_joined(attributes)}>{html.escape(label)}</text>'


def box(x: float, y: float, width: float, height: float, **attributes: object) -> str:
    """Return one SVG rectangle with softened corners."""
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4"'
        f"{_joined(attributes)}/>"
    )


def _joined(attributes: dict[str, object]) -> str:
    return "".join(
        f' {name.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for name, value in attributes.items()
    )
