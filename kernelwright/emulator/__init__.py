"""CUDA C++ on the CPU: the face of the emulator, refused until its runtime stands."""
from __future__ import annotations
from collections.abc import Sequence
from pathlib import Path
from kernelwright.errors import ToolchainError
def include_dir() -> Path:
    return Path(__file__).parents[1] / "include"
class Library:
    signatures: dict[str, str]
    @classmethod
    def build(cls, source: str, *, filename: str, kernels: Sequence[str], traced: bool = False) -> Library:
        raise ToolchainError("The emulator has no runtime yet: run on a machine with an NVIDIA GPU.")
    def launch(self, kernel: str, grid: object, block: object, shared_bytes: int, arguments: Sequence[bytes], *, deadline_s: float | None = None) -> str:
        raise ToolchainError("The emulator has no runtime yet: run on a machine with an NVIDIA GPU.")
