"""The two back ends behind one face: a compiled set of kernels that can be launched."""

from __future__ import annotations

import os
from functools import cache
from typing import Any, Literal, Protocol

import torch

from kernelwright.cuda.signature import Signature
from kernelwright.errors import Diagnostic, ToolchainError

Backend = Literal["emulator", "gpu"]
Dim3 = tuple[int, int, int]


class PlainLaunch(Protocol):
    """The short way to launch one kernel, for arguments that need no conversion."""

    def __call__(
        self, grid: Dim3, block: Dim3, shared: int, arguments: tuple[Any, ...]
    ) -> bool:
        """Launch, or return false where an argument is not plain, right or wrong."""


class Program(Protocol):
    """Kernels compiled by one back end, ready to launch."""

    signatures: dict[str, str]
    remarks: tuple[Diagnostic, ...]

    def launch(
        self, kernel: str, grid: Dim3, block: Dim3, shared: int, packed: list[bytes]
    ) -> None:
        """Run a kernel over a grid; the parameters are one ``bytes`` each."""

    def launch_ranks(
        self,
        kernel: str,
        grid: Dim3,
        block: Dim3,
        shared: int,
        ranks: list[tuple[list[bytes], list[torch.Tensor]]],
    ) -> None:
        """Run a kernel once for each rank, all at the same time.

        Args:
            kernel: its name expression.
            grid: blocks of a rank.
            block: threads of a block.
            shared: bytes of dynamic shared memory a block.
            ranks: of each its parameters, and the tensors behind them.
        """

    def plain(self, signature: Signature) -> PlainLaunch | None:
        """Return the short way to launch a kernel, where there is one."""


def backend() -> Backend:
    """Say where kernels run: ``gpu``, or ``emulator`` on the CPU.

    ``KERNELWRIGHT_BACKEND`` (``emulator`` or ``gpu``) overrides what is found.
    """
    chosen = os.environ.get("KERNELWRIGHT_BACKEND", "").strip().lower()
    if chosen == "emulator":
        return "emulator"
    if chosen not in ("", "gpu"):
        raise ToolchainError(
            f"KERNELWRIGHT_BACKEND is {chosen!r}; wanted: emulator, gpu, or nothing."
        )
    if chosen == "gpu" and not gpu_present():
        raise ToolchainError(
            "KERNELWRIGHT_BACKEND=gpu, and torch sees no NVIDIA GPU. Unset it to use "
            "the emulator, or see the chapter on troubleshooting."
        )
    return "gpu" if gpu_present() else "emulator"


@cache
def gpu_present() -> bool:
    """Say whether torch sees an NVIDIA GPU; asked once a process."""
    return torch.version.cuda is not None and torch.cuda.is_available()
