"""Generic edits of Python, by its syntax tree: one small mistake each.

A loop of a Triton kernel has no ``break``; one over a range is cut by its bounds.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from autograder.authoring.edits import (
    COMMUTATIVE,
    COMPARISONS,
    OPERATORS,
    ORDERED,
    Edit,
)

_SIGNS: dict[type[ast.AST], str] = {
    **{ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "=="},
    **{ast.NotEq: "!=", ast.Is: "is", ast.IsNot: "is not", ast.In: "in"},
    **{ast.NotIn: "not in", ast.Add: "+", ast.Sub: "-", ast.Mult: "*"},
    **{ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.LShift: "<<"},
    **{ast.RShift: ">>", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^"},
    **{ast.MatMult: "@", ast.Pow: "**", ast.And: "and", ast.Or: "or"},
}
_COMPARISONS = {
    **COMPARISONS,
    **{"is": ("is not",), "is not": ("is",), "in": ("not in",), "not in": ("in",)},
}
# What a learner reads, and what is never run, is no part of an answer's work.
_UNREAD = (ast.Raise, ast.JoinedStr, ast.arguments)
_COMMA = re.compile(r"\s*,\s*")
_RANGES = ("range", "static_range")


def python_edits(text: str, spans: tuple[tuple[int, int], ...]) -> Iterator[Edit]:
    """Give every generic edit of a text that lies within one of the spans."""
    editor = _Editor(text)
    editor.visit(ast.parse(text))
    for edit in editor.found:
        if edit.within(spans):
            yield edit


class _Editor(ast.NodeVisitor):
    """Walks the tree and gathers what may be changed."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.found: list[Edit] = []
        self.parameters: list[ast.arg] = []
        self.assigned: set[str] = set()
        self._lines = [0]
        for line in text.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))

    def visit(self, node: ast.AST) -> None:
        """Edit a node, then what it holds."""
        if isinstance(node, _UNREAD):
            return
        if isinstance(node, ast.stmt):
            self._statement(node)
        super().visit(node)

    # ---- statements ----

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Expr):
            if not isinstance(node.value, ast.Constant):
                self._put("statement dropped", node, "pass")
        elif isinstance(node, (ast.Assign, ast.AugAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {t.id for t in targets if isinstance(t, ast.Name)}
            # Without its only assignment a name is an error, which tells nothing.
            if names <= self.assigned:
                self._put("statement dropped", node, "pass")
            self.assigned |= names

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """Walk a function, which has names of its own."""
        outer = self.parameters, self.assigned
        self.parameters = [*node.args.args, *node.args.kwonlyargs]
        self.assigned = {p.arg for p in self.parameters}
        for child in node.body:
            self.visit(child)
        self.parameters, self.assigned = outer

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """Forget what was there, or take away what is added."""
        sign = _SIGNS[type(node.op)]
        self._between("operator", node.target, node.value, f"{sign}=", "=")
        if sign in OPERATORS:
            other = f"{OPERATORS[sign]}="
            self._between("operator", node.target, node.value, f"{sign}=", other)
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        """Take a guard out."""
        for value in ("True", "False"):
            self._put("guard taken out", node.test, value)
        self.generic_visit(node)

    def visit_For(self, node: ast.For) -> None:
        """Cut a loop to one round."""
        call = node.iter
        kind = "loop cut to one round"
        if isinstance(call, ast.Call) and self._callee(call) in _RANGES:
            bounds = [self._of(a) for a in call.args]
            if len(bounds) == 1:
                bounds = ["1"]
            else:
                bounds[1] = f"({bounds[0]}) + ({(*bounds, '1')[2]})"
            start, end = self._start(call.args[0]), self._end(call.args[-1])
            self.found.append(Edit(kind, start, end, ", ".join(bounds)))
        else:
            self._break(node)
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        """Cut a loop to one round."""
        self._break(node)
        self.generic_visit(node)

    def _break(self, node: ast.For | ast.While) -> None:
        end, first = self._end(node.body[-1]), node.body[0]
        new = f"\n{' ' * first.col_offset}break"
        head = " ".join(self.text[self._start(node) : self._start(first)].split())
        told = f"{head} -> one round"
        self.found.append(Edit("loop cut to one round", end, end, new, told))

    # ---- expressions ----

    def visit_Compare(self, node: ast.Compare) -> None:
        """Turn a comparison, or make it strict."""
        left = node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            sign = _SIGNS[type(operator)]
            for other in _COMPARISONS[sign]:
                self._between("comparison", left, right, sign, other)
            left = right
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        """Take another operator, exchange the operands, or leave one out."""
        sign = _SIGNS[type(node.op)]
        if sign in OPERATORS:
            self._between("operator", node.left, node.right, sign, OPERATORS[sign])
        left, right = self._of(node.left), self._of(node.right)
        if sign in ORDERED:
            self._put("operand exchanged", node, f"({right}) {sign} ({left})")
        if sign in ("&", "|"):
            self._put("condition dropped", node, left)
            self._put("condition dropped", node, right)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        """Leave out one of several conditions."""
        sign = f" {_SIGNS[type(node.op)]} "
        parts = [self._of(value) for value in node.values]
        for i in range(len(parts)):
            new = sign.join(parts[:i] + parts[i + 1 :])
            self._put("condition dropped", node, new)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        """Drop a sign."""
        self._put("sign dropped", node, self._of(node.operand))
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        """Take one of two values in any case."""
        self._put("condition dropped", node, self._of(node.body))
        self._put("condition dropped", node, self._of(node.orelse))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        """Exchange two arguments, or leave a named one out."""
        if len(node.args) > 1 and self._callee(node) not in (*COMMUTATIVE, *_RANGES):
            one, two = node.args[-2:]
            start, end = self._start(one), self._end(two)
            new = f"{self._of(two)}, {self._of(one)}"
            self.found.append(Edit("operand exchanged", start, end, new))
        for argument in node.keywords:
            kind = "mask taken out" if argument.arg == "mask" else "argument dropped"
            start, end = self._start(argument), self._end(argument)
            before = self.text[:start].rstrip()
            if before.endswith(","):
                self.found.append(Edit(kind, len(before) - 1, end, ""))
            else:  # the first one: with the comma behind it, if there is one
                behind = _COMMA.match(self.text, end)
                end = behind.end() if behind else end
                self.found.append(Edit(kind, start, end, ""))
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        """Take one axis for the other."""
        if isinstance(node.slice, ast.Tuple) and len(node.slice.elts) == 2:
            one, two = node.slice.elts
            start, end = self._start(one), self._end(two)
            new = f"{self._of(two)}, {self._of(one)}"
            self.found.append(Edit("x for y", start, end, new))
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        """Take the neighbouring parameter instead, if it is of the same type."""
        own = [p for p in self.parameters if p.arg == node.id]
        if not own or not isinstance(node.ctx, ast.Load):
            return
        alike = [p for p in self.parameters if _kind(p) == _kind(own[0])]
        if len(alike) > 1:
            at = alike.index(own[0])
            self._put("x for y", node, alike[at - 1 if at else 1].arg)

    def visit_Constant(self, node: ast.Constant) -> None:
        """Take a neighbouring number."""
        if isinstance(node.value, bool):
            self._put("operator", node, str(not node.value))
        elif isinstance(node.value, (int, float)):
            self._put("number off by one", node, repr(node.value + 1))
            # -1 is another last: of a row of one dimension the only axis.
            if isinstance(node.value, int) and node.value > 0:
                self._put("number off by one", node, repr(node.value - 1))

    # ---- small ones ----

    def _callee(self, node: ast.Call) -> str:
        return self._of(node.func).rpartition(".")[2]

    def _at(self, line: int, column: int) -> int:
        """Return the position of a line and a column counted in bytes."""
        start = self._lines[line - 1]
        row = self.text[start : self._lines[line]].encode()
        return start + len(row[:column].decode())

    def _start(self, node: ast.expr | ast.stmt | ast.keyword) -> int:
        return self._at(node.lineno, node.col_offset)

    def _end(self, node: ast.expr | ast.stmt | ast.keyword) -> int:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self._at(node.end_lineno, node.end_col_offset)

    def _of(self, node: ast.expr) -> str:
        return self.text[self._start(node) : self._end(node)]

    def _put(self, kind: str, node: ast.expr | ast.stmt, new: str) -> None:
        self.found.append(Edit(kind, self._start(node), self._end(node), new))

    def _between(
        self, kind: str, left: ast.expr, right: ast.expr, sign: str, new: str
    ) -> None:
        """Change the operator that stands between two operands."""
        low = self._end(left)
        start = self.text.index(sign, low, self._start(right))
        self.found.append(Edit(kind, start, start + len(sign), new))


def _kind(parameter: ast.arg) -> str:
    """Name what a parameter is: its annotation, or that it is a pointer."""
    if parameter.annotation is not None:
        return ast.unparse(parameter.annotation)
    return "pointer" if parameter.arg.endswith("_ptr") else ""
