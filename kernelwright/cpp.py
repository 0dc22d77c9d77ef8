"""Functions in C++ for the host, called from Python with tensors and numbers.

Like a kernel, a function takes pointers and numbers, and writes what it makes to memory
that it is given; ``extern "C"`` marks those that Python may call::

    extern "C" void twice(const float* x, float* out, int n) {
        for (int i = 0; i < n; i++) out[i] = 2 * x[i];
    }
"""

from __future__ import annotations

import ctypes
import os
import re
import tempfile
from pathlib import Path
from typing import Any

from kernelwright.cache import cached, digest
from kernelwright.cuda.arguments import pack_arguments
from kernelwright.cuda.ctypes_map import SCALARS
from kernelwright.cuda.signature import Signature, parse_signature
from kernelwright.emulator.diagnostics import compile_error
from kernelwright.emulator.source import mask
from kernelwright.emulator.toolchain import find_compiler, processor, run_compiler
from kernelwright.errors import CompileError

_FLAGS = ("-std=c++17", "-O2", "-march=native", "-fPIC", "-shared", "-fwrapv", "-Wall")
_FUNCTION = re.compile(r'extern\s*"C"\s+void\s+(\w+)\s*\(([^)]*)\)\s*\{')
_FIXED = re.compile(r"\b(?:std::)?(u?)int(8|16|32|64)_t\b")
_WIDTHS = {"8": "char", "16": "short", "32": "int", "64": "long"}
_CODES: dict[str, Any] = {
    "?": ctypes.c_bool, "f": ctypes.c_float, "d": ctypes.c_double,
    "b": ctypes.c_int8, "h": ctypes.c_int16, "i": ctypes.c_int32, "q": ctypes.c_int64,
    "B": ctypes.c_uint8, "H": ctypes.c_uint16, "I": ctypes.c_uint32,
    "Q": ctypes.c_uint64,
}  # fmt: skip


class Function:
    """A function of a compiled source; call it with tensors on the CPU and numbers."""

    def __init__(self, signature: Signature, source: str, call: Any) -> None:
        self.signature, self.source = signature, source
        self.name = signature.name
        self._call = call
        self._types = [
            ctypes.c_void_p if p.pointer else _CODES[SCALARS[p.ctype].code]
            for p in signature.parameters
        ]

    def __call__(self, *arguments: Any) -> None:
        """Call it.

        Raises:
            ArgumentError: an argument is not what its parameter takes.
        """
        packed, _ = pack_arguments(self.signature, arguments, "cpu")
        values = zip(self._types, packed, strict=True)
        self._call(*(kind.from_buffer_copy(data) for kind, data in values))

    def __repr__(self) -> str:
        return f"<C++ function {self.signature}>"


def compile(source: str, *, name: str = "cell.cpp") -> dict[str, Function]:
    """Compile C++ with the host's compiler.

    Returns:
        Each function that is marked with ``extern "C"``, by its name.

    Raises:
        CompileError: with the compiler's messages on the source's own lines; or there
            is no function that Python can call.
        ToolchainError: there is no compiler.
    """
    compiler = find_compiler("C++ for the host", any_processor=True)

    def produce(target: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="kernelwright-") as folder:
            (Path(folder) / name).write_text(source)
            command = [compiler.path, *_FLAGS, "-fdiagnostics-color=never"]
            command += ["-x", "c++", name, "-o", str(target)]
            done = run_compiler(command, cwd=Path(folder))
        if done.returncode != 0:
            raise compile_error(source, done.stderr, name, (), name)

    key = digest("cpp", compiler.identity, processor(), source, name, *_FLAGS)
    library = ctypes.CDLL(os.fspath(cached("cpp", key, ".so", produce)))
    found: dict[str, Function] = {}
    for match in _FUNCTION.finditer(_marked(source)):
        signature = parse_signature(match[1], f"void ({_plain(match[2])})")
        for parameter in signature.parameters:
            if not parameter.pointer and parameter.ctype not in SCALARS:
                raise CompileError(
                    f"{match[1]} takes a {parameter}; wanted pointers and numbers, "
                    "which Python can hand over"
                )
        call = getattr(library, match[1])
        call.restype = None
        found[match[1]] = Function(signature, source, call)
    if not found:
        raise CompileError(
            'Python can call nothing of this. Begin the function with extern "C" void, '
            'each with its own: extern "C" void twice(const float* x, float* out, int '
            "n) { … }. What it makes it writes to memory that it is given."
        )
    return found


def _marked(source: str) -> str:
    """Return a source without comments and strings, but for the mark itself."""
    blank, marks = mask(source), re.finditer(r'"C"', source)
    for mark in marks:
        if blank[: mark.start()].rstrip().endswith("extern"):
            blank = blank[: mark.start()] + mark[0] + blank[mark.end() :]
    return blank


def _plain(parameters: str) -> str:
    """Return the types of parameters alone, under the compiler's own names."""

    def fixed(found: re.Match[str]) -> str:
        sign = "unsigned " if found[1] else "signed " if found[2] == "8" else ""
        return sign + _WIDTHS[found[2]]

    types = []
    for parameter in filter(str.strip, parameters.split(",")):
        text = re.sub(r"\b(?:std::)?size_t\b", "unsigned long", parameter)
        kind = re.sub(r"\w+\s*$", "", _FIXED.sub(fixed, text))
        # The compiler's own order: float const*.
        types.append(re.sub(r"^\s*const\b([^*]*)", r"\1 const", kind).strip())
    return ", ".join(types)
