"""The cell that fetches the course on Colab, and does nothing anywhere else."""

from __future__ import annotations

_CELL = """\
# @title On Colab, run this first: it fetches the course (elsewhere: nothing)
import sys

if "google.colab" in sys.modules:
    import os
    import subprocess
    from importlib.metadata import version

    if not os.path.isdir("/content/kernelwright"):
        clone = ["git", "clone", "-q", "--depth", "1"]
        url = "{repository}.git"
        subprocess.run([*clone, url, "/content/kernelwright"], check=True)
    os.chdir("/content/kernelwright/chapters")
    # Colab's own torch and its partners stay as they are: pip is held to them.
    kept = [f"{{p}}=={{version(p)}}" for p in ("torch", "triton", "numpy")]
    with open("/tmp/kept.txt", "w") as file:
        file.write("\\n".join(kept))
    import torch

    major = (torch.version.cuda or "12").split(".")[0]
    course = f"/content/kernelwright[nvrtc{{major}}]"
    pip = [sys.executable, "-m", "pip", "install", "-q"]
    subprocess.run([*pip, "-c", "/tmp/kept.txt", "-e", course], check=True)
    sys.path.insert(0, "/content/kernelwright")
"""


def install_cell(repository: str) -> str:
    """Return the install cell's source, fetching from ``repository``."""
    return _CELL.format(repository=repository).rstrip("\n")
