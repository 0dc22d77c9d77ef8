"""A kernel module: compile it to a file, load the file, pack a launch's arguments."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernelwright.emulator import toolchain
from kernelwright.emulator.diagnostics import TAIL, compile_error
from kernelwright.emulator.launch import Entry
from kernelwright.emulator.shared_memory import with_gaps
from kernelwright.errors import LaunchError


def safe_name(filename: str) -> str:
    """Return a name for a file that compilers and their messages take as one word."""
    base = re.sub(r"[^A-Za-z0-9_.-]", "_", Path(filename).name) or "kernel"
    return base if base.endswith((".cu", ".cuh", ".cpp")) else base + ".cu"


def tail_of(kernels: Sequence[str]) -> str:
    """Write what follows the author's last line: an entry for each kernel.

    Two line ends: the author's last line may end in a backslash.
    """
    entries = "\n".join(
        f"KWEMU_ENTRY({number}, {name})" for number, name in enumerate(kernels)
    )
    return f'\n\n# 1 "{TAIL}"\n{entries}\n'


def compile_module(
    compiler: toolchain.Compiler,
    text: str,
    name: str,
    target: Path,
    source: str,
    kernels: Sequence[str],
) -> str:
    """Compile a prepared text to a shared library; return what the compiler said.

    Args:
        compiler: which to use.
        text: the prepared source with its tail.
        name: the file's name, in messages and in debug information.
        target: the shared library to write.
        source: the author's own text, for messages.
        kernels: the name expressions, for messages.

    Raises:
        CompileError: it does not compile.
    """
    toolchain.prepare(compiler)
    folder = Path(tempfile.mkdtemp(prefix="kernelwright-"))
    try:
        (folder / name).write_text(text)
        plain = "-fno-caret-diagnostics"
        if not compiler.is_clang:
            plain = "-fno-diagnostics-show-caret"
        command = [compiler.path, *compiler.flags, *toolchain.WARNINGS]
        command += [plain, "-fdiagnostics-color=never"]
        command += [f"-ffile-prefix-map={folder}=."]
        command += toolchain.prelude_options(compiler)
        command += toolchain.include_options()
        link = [*toolchain.LINK_FLAGS]
        if not compiler.is_clang:
            link += toolchain.GCC_LINK_FLAGS
        if compiler.traced:
            done = _with_gaps(compiler, command, link, name, target, folder)
        else:
            command += ["-x", "c++", name, "-o", str(target), *link]
            done = toolchain.run_compiler(command, cwd=folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if done.returncode == 0:
        return done.stderr
    raise compile_error(source, done.stderr, name, kernels, name)


def _with_gaps(
    compiler: toolchain.Compiler,
    command: list[str],
    link: list[str],
    name: str,
    target: Path,
    folder: Path,
) -> subprocess.CompletedProcess[str]:
    """Compile in two steps; between them the shared variables move apart."""
    compiled = toolchain.run_compiler(
        [*command, "-x", "c++", name, "-S", "-o", "kernel.s"], cwd=folder
    )
    if compiled.returncode != 0:
        return compiled
    assembly = folder / "kernel.s"
    assembly.write_text(with_gaps(assembly.read_text()))
    linked = toolchain.run_compiler(
        [compiler.path, assembly.name, "-o", str(target), *link], cwd=folder
    )
    linked.stderr = compiled.stderr + linked.stderr
    return linked


_loaded: set[Path] = set()
_loading = threading.Lock()


def load_module(path: Path) -> ctypes.CDLL:
    """Load a module; a second library of the same text gets variables of its own.

    The loader knows a file by its name and its inode: the copy needs new ones. It
    stands beside the module, where files may be loaded, if the cache can be written.
    """
    with _loading:
        if path not in _loaded:
            _loaded.add(path)
            return ctypes.CDLL(str(path))
        try:
            handle, copy = tempfile.mkstemp(dir=path.parent, suffix=".so")
        except OSError:
            handle, copy = tempfile.mkstemp(suffix=".so")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(path.read_bytes())
            return ctypes.CDLL(copy)
        finally:
            os.unlink(copy)


def pack(
    kernel: str, entry: Entry, arguments: Sequence[Any]
) -> tuple[list[Any], ctypes.Array[ctypes.c_void_p]]:
    """Lay the arguments out in memory, each aligned as any C type may ask."""
    if len(arguments) != entry.count:
        raise LaunchError(
            f"{kernel} takes {entry.count} arguments and got {len(arguments)}"
        )
    kept: list[Any] = []  # the buffers, alive as long as the launch
    pointers = (ctypes.c_void_p * max(entry.count, 1))()
    for number, argument in enumerate(arguments):
        data = bytes(argument)
        if len(data) != entry.sizes[number]:
            raise LaunchError(
                f"argument {number} of {kernel} has {len(data)} bytes; the kernel's "
                f"parameter has {entry.sizes[number]}"
            )
        buffer = ctypes.create_string_buffer(len(data) + 64)
        place = (ctypes.addressof(buffer) + 63) & ~63
        ctypes.memmove(place, data, len(data))
        kept.append(buffer)
        pointers[number] = place
    return kept, pointers
