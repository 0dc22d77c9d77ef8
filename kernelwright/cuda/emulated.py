"""Kernels on the emulator: the host's C++ compiler and fibers on the CPU."""

from __future__ import annotations

import sys

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
        try:
            printed = self._library.launch(kernel, grid, block, shared, packed)
        except KernelFault as fault:
            # What it said before it failed is often why.
            sys.stdout.write(fault.printed)
            raise
        sys.stdout.write(printed)

    def plain(self, signature: Signature) -> None:
        """Have no short way: what a launch takes here is the emulation."""
