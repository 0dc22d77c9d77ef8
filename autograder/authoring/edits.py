"""One edit of an answer's text: what a generic mutant is made of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Edit:
    """What stands between two positions of a text, replaced.

    Args:
        kind: what sort of mistake it is, such as ``statement dropped``.
        start: position of the first character that goes.
        end: position behind the last one.
        new: what comes in its place.
        told: its name, where the lines that change do not tell what was meant.
    """

    kind: str
    start: int
    end: int
    new: str
    told: str = ""

    def within(self, spans: tuple[tuple[int, int], ...]) -> bool:
        """Say whether it lies wholly in one of some stretches of the text."""
        return any(low <= self.start and self.end <= high for low, high in spans)

    def made(self, text: str) -> str:
        """Return the text with this edit made."""
        return text[: self.start] + self.new + text[self.end :]

    def name(self, text: str) -> str:
        """Say which lines become which, whatever number they have in the text."""
        if self.told:
            return self.told
        low = text.rfind("\n", 0, self.start) + 1
        high = text.find("\n", self.end)
        high = len(text) if high < 0 else high
        old = " ".join(text[low:high].split())
        new = text[low : self.start] + self.new + text[self.end : high]
        return f"{old} -> {' '.join(new.split()) or '(nothing)'}"


# What an operator is easily mistaken for, in both languages.
COMPARISONS = {
    "<": ("<=", ">"),
    "<=": ("<", ">="),
    ">": (">=", "<"),
    ">=": (">", "<="),
    "==": ("!=",),
    "!=": ("==",),
}
OPERATORS = {
    **{"+": "-", "-": "+", "*": "+", "/": "*", "//": "*", "%": "/"},
    **{"<<": ">>", ">>": "<<", "&": "|", "|": "&", "^": "&"},
}
# To exchange the operands of any other operator changes nothing.
ORDERED = ("-", "/", "//", "%", "<<", ">>", "@", "**")
# Nor does it matter in which order these take theirs.
COMMUTATIVE = frozenset(
    ("max", "min", "fmaxf", "fminf", "maximum", "minimum", "fmaf", "fma", "add")
)
