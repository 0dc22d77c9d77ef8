"""Of a Triton answer's cells, what a GPU's compiler would be given: its kernels.

Read as text, so that nothing of the learner's runs where it is compiled. Triton's
interpreter takes any Python; the compiler takes the kernels, and numbers that are
declared ``tl.constexpr``.
"""

from __future__ import annotations

import ast

# What may be computed while a module with nothing but kernels is loaded.
_MODULES = ("triton", "torch", "math", "kernelwright", "numpy")
_CALLS = ("tl.constexpr", "float", "int", "triton.next_power_of_2")
_PLAIN = (
    ast.Constant, ast.Name, ast.Attribute, ast.Tuple, ast.UnaryOp, ast.BinOp,
    ast.operator, ast.unaryop, ast.expr_context,
)  # fmt: skip


def kernels_only(source: str) -> str:
    """Return a cell with all but its kernels blanked; lines keep their numbers.

    Other functions stand as empty ones: that a kernel calls one is for the compiler
    to say.

    Raises:
        SyntaxError, ValueError: it cannot be read.
    """
    lines = source.splitlines()
    kept = [""] * len(lines)

    def keep(first: int, last: int) -> None:
        kept[first - 1 : last] = lines[first - 1 : last]

    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef):
            jit = next((d for d in node.decorator_list if _is_jit(d)), None)
            if jit is not None and _is_plain_head(node):
                kept[jit.lineno - 1] = "@triton.jit"
                keep(node.lineno, node.end_lineno or node.lineno)
            else:
                kept[node.lineno - 1] = f"def {node.name}(*_): pass"
        elif isinstance(node, ast.Import):
            roots = {name.name.partition(".")[0] for name in node.names}
            if roots <= set(_MODULES):
                keep(node.lineno, node.end_lineno or node.lineno)
        elif isinstance(node, ast.ImportFrom):
            if str(node.module).partition(".")[0] in _MODULES and not node.level:
                keep(node.lineno, node.end_lineno or node.lineno)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and _is_plain(node.value):
            keep(node.lineno, node.end_lineno or node.lineno)
    return "\n".join(kept) + "\n"


def _is_jit(decorator: ast.expr) -> bool:
    if isinstance(decorator, ast.Call):
        decorator = decorator.func
    # Under whatever name Triton was imported.
    return ast.unparse(decorator).rpartition(".")[2] == "jit"


def _is_plain_head(node: ast.FunctionDef) -> bool:
    """Say whether defining a function computes nothing."""
    every = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
    heads = [arg.annotation for arg in every] + [node.returns]
    heads += [*node.args.defaults, *node.args.kw_defaults]
    return all(_is_plain(head) for head in heads if head is not None)


def _is_plain(value: ast.expr | None) -> bool:
    """Say whether an expression is of numbers and names alone."""
    if value is None:
        return False
    for node in ast.walk(value):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called not in _CALLS and not called.startswith("math."):
                return False
        elif not isinstance(node, _PLAIN):
            return False
    return True
