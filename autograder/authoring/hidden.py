"""Hidden cases taken out of the declarations, with the functions that drew them."""

from __future__ import annotations

import ast
from collections.abc import Mapping

_NO_HIDDEN = "lambda generator: ()"
Edit = tuple[int, int, str]


def without_hidden_cases(modules: Mapping[str, str]) -> dict[str, str]:
    """Return modules of exercises whose ``hidden`` draws nothing.

    What only served to draw the cases is removed with them, wherever it stands.

    Args:
        modules: source texts by module name (without the package), such as
            ``{"vector_add": ..., "_transpose": ...}``.
    """
    texts = dict(modules)
    suspects: set[str] = set()
    for name, text in texts.items():
        texts[name] = _without_drawers(text, suspects)
    while (dead := _unused(texts, suspects)) is not None:
        module, function = dead
        suspects |= _names_in(function)
        edits: list[Edit] = [(*_span(function, texts[module]), "")]
        texts[module] = _edited(texts[module], edits)
        for name, text in texts.items():
            texts[name] = _without_import(text, module, function.name)
    return texts


def _without_drawers(text: str, suspects: set[str]) -> str:
    """Replace each ``hidden=``; note the names that stood there."""
    edits: list[Edit] = []
    for node in ast.walk(ast.parse(text)):
        if not (isinstance(node, ast.Call) and ast.unparse(node.func) == "Exercise"):
            continue
        for keyword in node.keywords:
            if keyword.arg == "hidden":
                suspects |= _names_in(keyword.value)
                edits.append((*_span(keyword.value, text), _NO_HIDDEN))
    return _edited(text, edits)


def _unused(
    texts: Mapping[str, str], suspects: set[str]
) -> tuple[str, ast.FunctionDef] | None:
    """Find a function that drew hidden cases and that nothing refers to any more."""
    trees = {name: ast.parse(text) for name, text in texts.items()}
    for module, tree in trees.items():
        for node in tree.body:
            if not (isinstance(node, ast.FunctionDef) and node.name in suspects):
                continue
            inside = _count(node, node.name)
            used = _count(tree, node.name) - inside
            for other, its in trees.items():
                if other != module and _imports(its, module, node.name):
                    used += _count(its, node.name)
            if used == 0:
                return module, node
    return None


def _names_in(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def _count(tree: ast.AST, name: str) -> int:
    return sum(
        1 for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == name
    )


def _from(node: ast.AST, module: str) -> bool:
    return isinstance(node, ast.ImportFrom) and (
        (node.module or "").rpartition(".")[2] == module
    )


def _imports(tree: ast.AST, module: str, name: str) -> bool:
    return any(
        isinstance(node, ast.ImportFrom)
        and _from(node, module)
        and any(alias.name == name for alias in node.names)
        for node in ast.walk(tree)
    )


def _without_import(text: str, module: str, name: str) -> str:
    edits: list[Edit] = []
    for node in ast.walk(ast.parse(text)):
        if not (isinstance(node, ast.ImportFrom) and _from(node, module)):
            continue
        left = [alias for alias in node.names if alias.name != name]
        if len(left) == len(node.names):
            continue
        kept = ast.ImportFrom(node.module, left, node.level)
        edits.append((*_span(node, text), ast.unparse(kept) if left else ""))
    return _edited(text, edits)


def _edited(text: str, edits: list[Edit]) -> str:
    encoded = text.encode()
    for first, last, new in sorted(edits, reverse=True):
        encoded = encoded[:first] + new.encode() + encoded[last:]
    return encoded.decode()


def _span(node: ast.expr | ast.stmt, text: str) -> tuple[int, int]:
    """Return the bytes that a node takes: ast counts columns in bytes."""
    starts = [0]
    for line in text.encode().split(b"\n"):
        starts.append(starts[-1] + len(line) + 1)
    assert node.end_lineno is not None and node.end_col_offset is not None
    first = starts[node.lineno - 1] + node.col_offset
    if isinstance(node, ast.FunctionDef) and node.decorator_list:
        first = starts[node.decorator_list[0].lineno - 1]
    return first, starts[node.end_lineno - 1] + node.end_col_offset
