"""A chapter's prelude and exercise cells, run into one fresh namespace."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from autograder.worker.entries import ENTRIES
from autograder.worker.entry import MissingName
from autograder.worker.one_thread import refuse_threads

_MAGIC = re.compile(r"^\s*(%|!)", re.MULTILINE)


# What the notebook's magic calls a cell too: one text is compiled once.
CUDA_FILE = "cell.cu"


class Namespace:
    """Where a chapter's prelude and the exercise cells are run.

    Args:
        folder: where the cells' text is written, so that tools that look for a
            function's source (Triton does) find it.
    """

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        self.module = ModuleType("exercise")
        sys.modules["exercise"] = self.module
        # File of each cell, and which exercise it belongs to.
        self.files: dict[str, str] = {}
        self.adapt: Callable[..., Any] | None = None

    def load(self, prelude: str, cells: Sequence[Mapping[str, str]]) -> None:
        """Run the prelude, then each cell in order."""
        exec(compile(prelude, "prelude", "exec"), vars(self.module))
        # Taken away before the cells run: it is the course's and no learner's name.
        self.adapt = vars(self.module).pop("__adapt__", None)
        refuse_threads(self.folder)
        for cell in cells:
            load = getattr(self, f"_load_{cell['language']}")
            load(cell["id"], cell["source"])

    def answer(self, name: str, entry: str) -> Any:
        """Return what the exercise's cell defined under ``name``.

        Raises:
            MissingName: it is not there or is not of the right kind.
        """
        wanted = ENTRIES[entry]
        value = vars(self.module).get(name)
        if "<" in name and (owner := vars(self.module).get(name.split("<")[0])):
            value = owner[name]
        if value is None:
            own = sorted(n for n in vars(self.module) if not n.startswith("_"))
            given = [n for n in own if n not in ("torch", "kw", "tl", "triton")]
            raise MissingName(
                f"the cell defines no {name!r}. It defines: "
                f"{', '.join(given) or 'nothing'}. Give your {wanted.noun} the name "
                f"{name}."
            )
        if not wanted.fits(value):
            raise MissingName(
                f"{name} is a {type(value).__name__}; wanted a {wanted.noun} of that "
                "name."
            )
        return partial(self.adapt, value) if self.adapt else value

    def _load_cuda(self, exercise: str, source: str) -> None:
        import kernelwright as kw

        module = kw.cuda.compile(source, name=CUDA_FILE)
        for name in module.kernels:
            setattr(self.module, name.split("::")[-1], module[name])
        for name in module.templates:
            setattr(self.module, name.split("::")[-1], module)

    def _load_cpp(self, exercise: str, source: str) -> None:
        from kernelwright import cpp

        vars(self.module).update(cpp.compile(source))

    def _load_python(self, exercise: str, source: str) -> None:
        path = self.folder / f"{exercise}.py"
        path.write_text(source, encoding="utf-8")
        self.files[str(path)] = exercise
        try:
            # As a notebook has it: with none of this file's own future statements.
            code = compile(source, str(path), "exec", dont_inherit=True)
        except SyntaxError as error:
            if _MAGIC.search(source):
                error.msg = (
                    f"{error.msg} (a line that starts with % or ! is not Python: "
                    "an exercise's cell holds plain Python only)"
                )
            raise
        exec(code, vars(self.module))
