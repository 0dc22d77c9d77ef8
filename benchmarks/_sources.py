"""Kernels to be timed, compiled from the course's own texts."""

from __future__ import annotations

from pathlib import Path

import kernelwright as kw
from autograder.authoring.regions import Region, read_region

ROOT = Path(__file__).parents[1]


def rung(folder: Path, stem: str, kernel: str = "") -> kw.cuda.Kernel:
    """Compile a rung of a chapter's ladder: ``<folder>/<stem>.cu``.

    Args:
        folder: of the solution.
        stem: of the file.
        kernel: its name or an instance of it; the file's first one when absent.
    """
    module = kw.cuda.compile((folder / f"{stem}.cu").read_text(), name=f"{stem}.cu")
    return module[kernel or module.kernels[0]]


def detective(stem: str, exercise: str) -> Region:
    """Return a detective's kernel: broken, as the learner gets it, and mended."""
    # Beside its declaration, or where it was before chapters had folders.
    beside, older = (
        ROOT / "autograder" / room / stem / f"{exercise}.cu"
        for room in ("exercises", "answers")
    )
    return read_region(beside if beside.exists() else older, exercise)


def detective_kernel(stem: str, exercise: str, *, solved: bool) -> kw.cuda.Kernel:
    """Compile a detective's kernel, as it is given to the learner or mended."""
    region = detective(stem, exercise)
    text = region.text_solved if solved else region.text_stub
    return kw.cuda.compile(text)[exercise]
