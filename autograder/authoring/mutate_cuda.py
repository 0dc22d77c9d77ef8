"""Generic edits of C++, CUDA's or a host's, by its tokens: one small mistake each.

The text is the course's own, in the form that clang-format gives it: an operator
between two operands has a blank on both sides, the angle bracket of a template none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from autograder.authoring.edits import (
    COMMUTATIVE,
    COMPARISONS,
    OPERATORS,
    ORDERED,
    Edit,
)
from kernelwright.emulator.source import mask

_TOKEN = re.compile(
    r"(?P<name>[A-Za-z_]\w*)"
    r"|(?P<number>0[xX][0-9a-fA-F]+[uUlL]*"
    r"|(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?[fFuUlL]*)"
    r"|(?P<sign><<=|>>=|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|::|\S)"
)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\n|[^\n])*", re.MULTILINE)
_DECLARED = re.compile(
    r"\b(?P<type>(?:unsigned |long )?(?:float|double|int|long|char|bool|unsigned|half"
    r"|size_t|auto|__half2?|__nv_bfloat16|float[24]|u?int\d+_t|[A-Z]\w*)(?: ?\*)*)"
    r"(?: __restrict__)?\s+(?P<name>\w+)(?P<array>(?:\[[^\]]*\])*)\s*(?=[=;,){:])"
)
_CLOSES = {"(": ")", "[": "]", "{": "}"}
_ASSIGN = ("=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>=")
_AXES = {"x": "y", "y": "x", "z": "y", "w": "x"}
_UNARY = ("-", "!", "~", "*", "&", "+", "++", "--")


class _Token(NamedTuple):
    kind: str
    text: str
    start: int
    end: int


def cuda_edits(text: str, spans: tuple[tuple[int, int], ...]) -> Iterator[Edit]:
    """Give every generic edit of a text that lies within one of the spans."""
    editor = _Editor(text)
    for low, high in spans:
        for edit in editor.edits_between(low, high):
            if edit.within(((low, high),)):
                yield edit


class _Editor:
    """Reads a text once; finds statements, operands and what may be changed."""

    def __init__(self, text: str) -> None:
        self.text = text
        masked = _DIRECTIVE.sub(lambda m: " " * len(m.group()), mask(text))
        self.tokens = [
            _Token(str(m.lastgroup), m.group(), m.start(), m.end())
            for m in _TOKEN.finditer(masked)
        ]
        self.partner = self._partners()
        self.declared = self._declarations(masked)
        self.found: list[Edit] = []

    def edits_between(self, low: int, high: int) -> list[Edit]:
        """Return the edits that begin within a stretch that holds statements."""
        self.found = []
        inside = [i for i, t in enumerate(self.tokens) if low <= t.start < high]
        at = inside[0] if inside else 0
        while inside and at <= inside[-1]:
            at = self._statement(at)
        for i in inside:
            self._token(i)
        return self.found

    # ---- what is found once ----

    def _partners(self) -> dict[int, int]:
        """Match brackets, both ways."""
        opened: list[int] = []
        found: dict[int, int] = {}
        for i, token in enumerate(self.tokens):
            if token.text in _CLOSES:
                opened.append(i)
            elif token.text in _CLOSES.values():
                found[i] = opened.pop()
                found[found[i]] = i
        return found

    def _declarations(self, masked: str) -> list[tuple[int, int, str, str]]:
        """List what is declared: position, function's number, type, name."""
        return [
            (m.start("name"), self._function(m.start()), kind, m["name"])
            for m in _DECLARED.finditer(masked)
            for kind in [f"{m['type']}{'[]' * m['array'].count('[')}"]
        ]

    def _function(self, position: int) -> int:
        """Number the outermost braces that have closed before a position."""
        depth = closed = 0
        for token in self.tokens:
            if token.start >= position:
                break
            depth += (token.text == "{") - (token.text == "}")
            closed += token.text == "}" and depth == 0
        return closed

    # ---- statements ----

    def _statement(self, i: int) -> int:
        """Edit the statement that begins at a token; return the one behind it."""
        word = self._word(i)
        if word == "{":
            return self._block(i)
        if word == "if":
            head = i + 1 if self._word(i + 1) == "(" else i + 2
            close = self.partner[head]
            for value in ("true", "false"):
                self._put("guard taken out", head + 1, close, value)
            end = self._statement(close + 1)
            return self._statement(end + 1) if self._word(end) == "else" else end
        if word in ("for", "while"):
            body = self.partner[i + 1] + 1
            end = self._statement(body)
            self._cut(i, body, end)
            return end
        return self._simple(i)

    def _block(self, i: int) -> int:
        close, at = self.partner[i], i + 1
        while at < close:
            at = self._statement(at)
        return close + 1

    def _simple(self, i: int) -> int:
        j, assigned = i, False
        while self._word(j) != ";":
            if self._word(j) == "{" and not assigned and self._word(j - 1) == ")":
                return self._block(j)  # a function of the learner's own
            assigned |= self._word(j) == "="
            j = self.partner.get(j, j) + 1
        if self._can_go(i):
            kind = "statement dropped"
            if re.match(r"__sync|__threadfence|__pipeline|asm|kw", self._word(i)):
                kind = "barrier or fence taken out"
            self._put(kind, i, j + 1, ";")
        return j + 1

    def _can_go(self, i: int) -> bool:
        """Say whether a statement is no declaration, so that the rest compiles."""
        word = self._word(i)
        if word in ("return", "break", "continue", "asm", "++", "--", "*", "("):
            return True
        if self.tokens[i].kind != "name":
            return False
        while self._word(i + 1) == "::":
            i += 2
        after = self._after_template(i + 1)
        return self._word(after) in ("(", "[", ".", "->", "++", "--", *_ASSIGN)

    def _cut(self, i: int, body: int, end: int) -> None:
        """Have the body of the loop at a token run once."""
        whole = self._between(body, end)
        new = f"{whole[:-1]} break; }}" if whole[0] == "{" else f"{{ {whole} break; }}"
        head = " ".join(self._between(i, body).split())
        self._put("loop cut to one round", body, end, new, f"{head} -> one round")

    # ---- tokens ----

    def _token(self, i: int) -> None:
        token = self.tokens[i]
        if token.kind == "number":
            for other in _neighbours(token.text):
                self._put("number off by one", i, i + 1, other)
        elif token.kind == "name":
            self._name(i)
        elif token.text in _ASSIGN[1:]:
            self._put("operator", i, i + 1, "=")
            if token.text[:-1] in OPERATORS:
                self._put("operator", i, i + 1, f"{OPERATORS[token.text[:-1]]}=")
        elif token.text in ("++", "--"):
            self._put("operator", i, i + 1, "--" if token.text == "++" else "++")
        elif self._is_binary(i):
            self._binary(i)
        elif token.text in _UNARY[:3] and not self._is_operand(i - 1):
            self._put("sign dropped", i, i + 1, "")

    def _name(self, i: int) -> None:
        token, before = self.tokens[i], self._word(i - 1)
        if before in (".", "->"):
            if token.text in _AXES:
                self._put("x for y", i, i + 1, _AXES[token.text])
            return
        if token.text in ("true", "false"):
            self._put("operator", i, i + 1, str(token.text == "false").lower())
        elif self._word(i + 1) == "(":
            self._exchange_arguments(i)
        elif other := self._look_alike(token):
            self._put("x for y", i, i + 1, other)

    def _look_alike(self, token: _Token) -> str:
        """Return the nearest other name of the same type in the same function."""
        function = self._function(token.start)
        here = [d for d in self.declared if d[1] == function and d[0] <= token.start]
        own = [d for d in here if d[3] == token.text]
        if not own or own[-1][0] == token.start:
            return ""
        others = [d for d in here if d[2] == own[-1][2] and d[3] != token.text]
        return min(others, key=lambda d: abs(d[0] - own[-1][0]))[3] if others else ""

    def _exchange_arguments(self, i: int) -> None:
        """Exchange the last two arguments of a call."""
        close = self.partner[i + 1]
        commas = [j for j in self._inside(i + 1) if self._word(j) == ","]
        if self.tokens[i].text in COMMUTATIVE or not commas:
            return
        first = commas[-2] + 1 if len(commas) > 1 else i + 2
        pair = self._between(first, commas[-1]), self._between(commas[-1] + 1, close)
        new = f"{pair[1]}, {pair[0]}"
        self._put("operand exchanged", first, close, new)

    def _binary(self, i: int) -> None:
        sign = self.tokens[i].text
        for other in COMPARISONS.get(sign, ()):
            self._put("comparison", i, i + 1, other)
        if sign in OPERATORS:
            self._put("operator", i, i + 1, OPERATORS[sign])
        if sign in ORDERED:
            low, high = self._operand_before(i), self._operand_behind(i)
            left, right = self._between(low, i), self._between(i + 1, high)
            new = f"{right} {sign} {left}"
            self._put("operand exchanged", low, high, new)
        if sign in ("&&", "||"):
            low = self._reach(i, -1, ("&&", "||"))
            high = self._reach(i, +1, ("&&", "||"))
            self._put("condition dropped", low, high, self._between(low, i))
            self._put("condition dropped", low, high, self._between(i + 1, high))
        if sign == "?":
            low = self._reach(i, -1, ())
            for value in ("true", "false"):
                self._put("condition dropped", low, i, value)

    # ---- where an operand ends ----

    def _operand_behind(self, i: int) -> int:
        """Return the token behind the operand that follows an operator."""
        j = i + 1
        while self._word(j) in _UNARY:
            j += 1
        j = self._after_template(self.partner.get(j, j) + 1)
        while self._word(j) in ("(", "[", ".", "->", "::"):
            j = self.partner[j] + 1 if self._word(j) in "([" else j + 2
        return j

    def _operand_before(self, i: int) -> int:
        """Return the first token of the operand before an operator."""
        j = i - 1
        while True:
            while self._word(j) in (")", "]"):
                j = self.partner[j] - 1
                if self.tokens[j].kind == "sign" and self._word(j) not in (")", "]"):
                    return j + 1
            if self._word(j - 1) not in (".", "->", "::"):
                return j
            j -= 2

    def _reach(self, i: int, step: int, stops: tuple[str, ...]) -> int:
        """Return where an expression begins, or what stands behind its end."""
        ends = (*stops, *_ASSIGN, *",;?:([{)]}", "return", "")
        j = i + step
        brackets = (")", "]", "}") if step < 0 else ("(", "[", "{")
        while self._word(j) in brackets or self._word(j) not in ends:
            j = self.partner.get(j, j) + step
        return j + 1 if step < 0 else j

    # ---- small ones ----

    def _word(self, i: int) -> str:
        return self.tokens[i].text if 0 <= i < len(self.tokens) else ""

    def _between(self, low: int, high: int) -> str:
        """Return the author's text from one token up to another."""
        return self.text[self.tokens[low].start : self.tokens[high - 1].end]

    def _put(self, kind: str, low: int, high: int, new: str, told: str = "") -> None:
        start, end = self.tokens[low].start, self.tokens[high - 1].end
        self.found.append(Edit(kind, start, end, new, told))

    def _inside(self, i: int) -> Iterator[int]:
        """Give the tokens directly within a pair of brackets."""
        j = i + 1
        while j < self.partner[i]:
            yield j
            j = self.partner.get(j, j) + 1

    def _after_template(self, i: int) -> int:
        """Skip a template's arguments, if they begin at a token."""
        if self._word(i) != "<" or self.text[self.tokens[i].start - 1].isspace():
            return i
        depth = 0
        for j in range(i, len(self.tokens)):
            depth += {"<": 1, ">": -1, ">>": -2}.get(self._word(j), 0)
            if depth <= 0:
                return j + 1
        return i

    def _is_binary(self, i: int) -> bool:
        start, end = self.tokens[i].start, self.tokens[i].end
        spaced = self.text[start - 1 : start].isspace() and self.text[end].isspace()
        return spaced and self._is_operand(i - 1)

    def _is_operand(self, i: int) -> bool:
        """Say whether a token may be the last of an operand."""
        token = self.tokens[i]
        return (token.kind != "sign" and token.text != "return") or token.text in ")]"


def _neighbours(number: str) -> Iterator[str]:
    """Give what a number is easily mistaken for."""
    digits = number.rstrip("uUlL" if number[:2] in ("0x", "0X") else "uUlLfF")
    suffix = number[len(digits) :]
    if re.fullmatch(r"0[xX][0-9a-fA-F]+", digits):
        yield f"{int(digits, 16) >> 1:#x}{suffix}"
    elif digits.isdigit():
        yield f"{int(digits) + 1}{suffix}"
        yield f"{int(digits) - 1}{suffix}"
    else:
        yield f"{float(digits) + 1}{suffix}"
