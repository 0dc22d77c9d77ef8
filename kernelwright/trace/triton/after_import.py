"""A change to a module that may not be imported yet, and perhaps never is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

Change = Callable[[ModuleType], None]


def after_import(name: str, change: Change) -> None:
    """Change a module now, or as soon as it is imported.

    Args:
        name: the module's, such as ``"triton.runtime.autotuner"``.
        change: is given the module, once.
    """
    if (found := sys.modules.get(name)) is not None:
        change(found)
    else:
        sys.meta_path.insert(0, _Finder(name, change))


class _Finder:
    """Finds one module as it is found without it, and lets it be changed then."""

    def __init__(self, name: str, change: Change) -> None:
        self._name = name
        self._change = change

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: object = None
    ) -> ModuleSpec | None:
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_change(module: ModuleType) -> None:
                execute(module)
                self._change(module)

            spec.loader.exec_module = execute_and_change  # type: ignore[method-assign]
        return spec
