"""A compiled CUDA C++ source and the kernels in it."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import torch

from kernelwright.cuda.arguments import pack_arguments
from kernelwright.cuda.backends import Backend, Dim3, PlainLaunch, Program, backend
from kernelwright.cuda.kernel import Kernel
from kernelwright.cuda.nvrtc import Cubin, compile_cubin
from kernelwright.cuda.signature import Signature, parse_signature
from kernelwright.cuda.source import find_kernels
from kernelwright.cuda.watch import unwrapped, watched
from kernelwright.errors import CompileError, Diagnostic


class Module:
    """One CUDA C++ text, compiled; ``module["name"]`` is a kernel of it.

    Args:
        source: the text.
        name: the file name that messages carry.
        backend: ``emulator`` or ``gpu``.
    """

    def __init__(self, source: str, name: str, backend: Backend) -> None:
        self.source = source
        self.name = name
        self.backend = backend
        found = find_kernels(source)
        self.kernels = tuple(k.name for k in found if not k.template)
        self.templates = tuple(k.name for k in found if k.template)
        self._programs: dict[str, Program] = {}
        self._signatures: dict[str, Signature] = {}
        self._plain: dict[str, PlainLaunch] = {}
        self._cubins: dict[tuple[str, str], Cubin] = {}
        # Compiled now even with no kernel in it, so that errors show at once.
        self._build(self.kernels)

    @property
    def device_type(self) -> str:
        """The torch device type whose memory the kernels reach."""
        return "cuda" if self.backend == "gpu" else "cpu"

    def __getitem__(self, expression: str) -> Kernel:
        """Return a kernel by its C++ name; a template instance is compiled now."""
        name = _normal(expression)
        base = name.split("<")[0]
        if name not in self._programs:
            known = (*self.kernels, *self.templates)
            if base in self.templates and "<" not in name:
                raise KeyError(
                    f"{name} is a template: name an instance, such as "
                    f'module["{name}<float>"].'
                )
            if known and base not in known:
                raise KeyError(
                    f"{self.name} has no kernel {base!r}. It has: {', '.join(known)}."
                )
            self._build((name,))
        return Kernel(self, name)

    def program(self, expression: str) -> Program:
        """Return what runs a kernel, which it knows by its normal name."""
        return self._programs[self[expression].name]

    @property
    def remarks(self) -> tuple[Diagnostic, ...]:
        """What compiles and is hardly meant, on the source's own lines."""
        found = [r for p in self._programs.values() for r in p.remarks]
        return tuple(dict.fromkeys(found))

    def signature(self, expression: str) -> Signature:
        """Return a compiled kernel's parameters."""
        return self._signatures[expression]

    def cubin(self, expression: str, arch: str) -> Cubin:
        """Compile one kernel for a chip, with or without a GPU in the machine."""
        key = (expression, arch)
        if key not in self._cubins:
            self._cubins[key] = compile_cubin(
                self.source, filename=self.name, kernels=(expression,), arch=arch
            )
        return self._cubins[key]

    def launch(
        self,
        expression: str,
        grid: Dim3,
        block: Dim3,
        shared: int,
        arguments: tuple[Any, ...],
    ) -> None:
        """Launch on the tensors' device, on torch's current stream there.

        Raises:
            ArgumentError: an argument that the kernel does not take.
        """
        if watched.watcher is not None:
            self._launch_watched(expression, grid, block, shared, arguments)
            return
        plain = self._plain.get(expression)
        if plain is not None and plain(grid, block, shared, arguments):
            return
        packed, tensors = pack_arguments(
            self._signatures[expression], arguments, self.device_type
        )
        program = self._programs[expression]
        on_gpu = self.backend == "gpu" and tensors
        # What the GPU reads must not be freed under it: torch's allocator reuses a
        # block in stream order, and the launch is on the current stream.
        with torch.cuda.device(tensors[0].device) if on_gpu else nullcontext():
            program.launch(expression, grid, block, shared, packed)

    def launch_ranks(
        self,
        expression: str,
        grid: Dim3,
        block: Dim3,
        shared: int,
        ranks: tuple[tuple[Any, ...], ...],
    ) -> None:
        """Launch for several ranks at once, each with its own arguments.

        Raises:
            ArgumentError: an argument that the kernel does not take.
        """
        signature = self._signatures[expression]
        packed = [pack_arguments(signature, each, self.device_type) for each in ranks]
        self._programs[expression].launch_ranks(expression, grid, block, shared, packed)

    def _launch_watched(
        self,
        expression: str,
        grid: Dim3,
        block: Dim3,
        shared: int,
        arguments: tuple[Any, ...],
    ) -> None:
        watcher = watched.watcher
        assert watcher is not None
        plain = tuple(map(unwrapped, arguments))
        with watcher.paused():
            packed, _ = pack_arguments(
                self._signatures[expression], plain, self.device_type
            )
            program = self._programs[expression]
            watcher.saw_launch(
                program, expression, grid, block, shared, arguments, packed
            )
            self.launch(expression, grid, block, shared, plain)

    def _build(self, expressions: tuple[str, ...]) -> None:
        program = _program(self.backend, self.source, self.name, expressions)
        for expression in expressions:
            signature = parse_signature(expression, program.signatures[expression])
            self._programs[expression] = program
            self._signatures[expression] = signature
            plain = program.plain(signature)
            if plain is not None:
                self._plain[expression] = plain

    def __repr__(self) -> str:
        known = ", ".join((*self.kernels, *(f"{t}<…>" for t in self.templates)))
        return f"<Module {self.name} on the {self.backend}: {known or 'no kernels'}>"


def compile(
    source: str, *, name: str = "kernel.cu", backend: Backend | None = None
) -> Module:
    """Compile CUDA C++ for this machine: NVRTC on a GPU, the host compiler elsewhere.

    Args:
        source: the text; both back ends compile it as it is.
        name: the file name that messages carry.
        backend: ``emulator`` or ``gpu``; by default what ``backend()`` says.

    Returns:
        The module; ``module["vector_add"]`` is a kernel, ``module["tile<float, 16>"]``
        an instance of a template.

    Raises:
        CompileError: with the compiler's messages on the source's own lines.
        ToolchainError: where a compiler is missing.
    """
    if not isinstance(source, str):
        raise CompileError(
            f"compile takes the source as text, got {type(source).__name__}. Read a "
            "file with Path(...).read_text()."
        )
    if "\n" not in source and source.strip().endswith((".cu", ".cuh", ".cpp")):
        raise CompileError(
            f"compile takes the source itself, and {source!r} looks like a file's "
            f"name. Read the file first: compile(Path({source!r}).read_text())."
        )
    return Module(source, name, backend or _default())


def kernels(folder: Path) -> Callable[[str, str, str], Kernel]:
    """Return what finds a kernel in a folder's files; each is compiled once.

    >>> kernel = kw.cuda.kernels(Path(__file__).parent)
    >>> kernel("padded", "transpose_padded<float>", x.device.type)[grid, block](x, out)

    Args:
        folder: where the ``.cu`` files lie.

    Returns:
        A function of a file's stem, a kernel's C++ name and a device type: ``cuda``
        means the GPU, any other the emulator.
    """

    @cache
    def module(stem: str, device_type: str) -> Module:
        text = (folder / f"{stem}.cu").read_text(encoding="utf-8")
        chosen: Backend = "gpu" if device_type == "cuda" else "emulator"
        return compile(text, name=f"{stem}.cu", backend=chosen)

    @cache
    def kernel(stem: str, expression: str, device_type: str) -> Kernel:
        return module(stem, device_type)[expression]

    return kernel


_default = backend


def _normal(expression: str) -> str:
    """Give each spelling of an instance one form: ``tile<float,16>``'s."""
    return re.sub(r"\s*([<>,:*&])\s*", r"\1", " ".join(expression.split()))


def _program(
    chosen: Backend, source: str, name: str, expressions: tuple[str, ...]
) -> Program:
    if chosen == "gpu":
        from kernelwright.cuda.gpu import GpuProgram

        return GpuProgram(source, name, expressions)
    from kernelwright.cuda.emulated import EmulatedProgram

    return EmulatedProgram(source, name, expressions)
