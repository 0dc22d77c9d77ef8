"""Kernels on the emulator: the host's C++ compiler and fibers on the CPU."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

from kernelwright import imitated
from kernelwright.cuda.backends import Dim3
from kernelwright.cuda.diagnostics import compile_error
from kernelwright.cuda.signature import Signature
from kernelwright.emulator import Library
from kernelwright.errors import CompileError, KernelFault


class EmulatedProgram:
    """The kernels of one source, compiled for the CPU."""

    def __init__(self, source: str, filename: str, kernels: tuple[str, ...]) -> None:
        try:
            self._library = Library.build(source, filename=filename, kernels=kernels)
        except CompileError as error:
            if not error.diagnostics:
                raise
            raise compile_error(
                source, filename, error.diagnostics, error.log
            ) from None
        self.signatures = dict(self._library.signatures)
        self.remarks = self._library.warnings

    def launch(
        self, kernel: str, grid: Dim3, block: Dim3, shared: int, packed: list[bytes]
    ) -> None:
        """Run a kernel to its end and print what it printed."""
        self._told(self._library.launch, kernel, grid, block, shared, packed)

    @staticmethod
    def _told(launch: Callable[..., str], *arguments: Any) -> None:
        """Launch, and print what the kernel printed."""
        imitated.note()
        try:
            printed = launch(*arguments)
        except KernelFault as fault:
            # What it said before it failed is often why.
            sys.stdout.write(fault.printed)
            raise
        sys.stdout.write(printed)

    def launch_ranks(
        self,
        kernel: str,
        grid: Dim3,
        block: Dim3,
        shared: int,
        ranks: list[tuple[list[bytes], list[torch.Tensor]]],
    ) -> None:
        """Run a kernel on several ranks in this process, each with its own grid."""
        packed = [each for each, _ in ranks]
        self._told(self._library.launch_ranks, kernel, grid, block, shared, packed)

    def plain(self, signature: Signature) -> None:
        """Have no short way: what a launch takes here is the emulation."""
