"""The cell magics: ``%%cuda`` makes kernels of a cell, ``%%cpp`` functions."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from kernelwright import cpp, cuda
from kernelwright.errors import KernelwrightError

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

# A forgotten loop condition should cost a learner seconds, not the kernel.
_DEADLINE_S = "30"


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register ``%%cuda`` and ``%%cpp``; called by ``%load_ext kernelwright``."""
    os.environ.setdefault("KERNELWRIGHT_DEADLINE_S", _DEADLINE_S)

    def cuda_cell(line: str, cell: str) -> None:
        run_cell(shell, line, cell)

    def cpp_cell(line: str, cell: str) -> None:
        _refuse_rest("%%cpp", line)
        shell.push(cpp.compile("\n" + cell))

    shell.register_magic_function(cuda_cell, "cell", "cuda")
    shell.register_magic_function(cpp_cell, "cell", "cpp")
    shell.set_custom_exc((KernelwrightError,), _show_error)
    _load_again_in_silence(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Take the magics away again."""
    for name in ("cuda", "cpp"):
        shell.magics_manager.magics["cell"].pop(name, None)
    shell.set_custom_exc((), None)
    vars(shell.extension_manager).pop("load_extension", None)


def _load_again_in_silence(shell: InteractiveShell) -> None:
    """Keep IPython from telling a learner who runs the first cell twice about it."""
    manager = shell.extension_manager
    load = type(manager).load_extension

    def load_extension(name: str) -> str | None:
        answer: str | None = load(manager, name)
        again = name == "kernelwright" and answer == "already loaded"
        return None if again else answer

    vars(manager)["load_extension"] = load_extension


def _refuse_rest(magic: str, line: str) -> None:
    if line.strip():
        raise KernelwrightError(
            f"{magic} takes nothing behind it on its line, got {line.strip()!r}. Put "
            "the code on the next line."
        )


def run_cell(shell: InteractiveShell, line: str, cell: str) -> None:
    """Compile a cell and bind each kernel of it to its own name.

    A template is bound as the module, so that ``tile["tile<float>"]`` names an
    instance.
    """
    _refuse_rest("%%cuda", line)
    # The magic's line stays as a blank one: line 3 of a message is line 3 on screen.
    module = cuda.compile("\n" + cell, name="cell.cu")
    names = {kernel: module[kernel] for kernel in module.kernels}
    shell.push({name.split("::")[-1]: kernel for name, kernel in names.items()})
    shell.push({name.split("::")[-1]: module for name in module.templates})
    if "// fill me in" not in cell:
        for remark in module.remarks:
            print(f"line {remark.line}: {remark.message}", file=sys.stderr)
    if not names and not module.templates:
        print(
            "The cell compiled, and holds no __global__ function: nothing to launch.",
            file=sys.stderr,
        )


def _show_error(
    shell: InteractiveShell,
    kind: type[BaseException],
    error: BaseException,
    traceback: object,
    tb_offset: int | None = None,
) -> list[str]:
    """Show our own errors without a traceback: the message says it all."""
    lines = [f"{kind.__name__}: {error}"]
    # The shell's own way of sending an error, so that every front end marks the cell.
    shell._showtraceback(kind, error, lines)
    return lines
