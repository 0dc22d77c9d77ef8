"""Compile CUDA C++ to a cubin with NVRTC: works with no GPU in the machine."""

from __future__ import annotations

import ctypes
import io
import json
import re
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kernelwright.cache import cached, digest
from kernelwright.cuda.diagnostics import compile_error, parse_nvrtc
from kernelwright.cuda.toolkit import disassembler, include_folders
from kernelwright.errors import CompileError, ToolchainError

# An empty kernel whose template argument carries another kernel's type: its mangled
# name spells the parameters, even of an extern "C" kernel, which has no mangling.
_SIGNATURE_PROBE = "\ntemplate <typename F> __global__ void kw_signature_of() {}\n"

_OPTIONS: dict[str, Any] = {
    "std": "c++17",
    # INFINITY, uint32_t and their kin without an #include, as with nvcc.
    "pre_include": "kw/standard_names.cuh",
    "ptxas_options": ["-v"],
    "lineinfo": True,
    # Where there is a driver NVRTC keeps cubins in its cache, but not what ptxas said
    # of them: what another process had just compiled came back without a word.
    "no_cache": True,
}

_INFO = re.compile(
    r"Compiling entry function '(?P<name>[^']+)'.*?"
    r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, "
    r"(?P<loads>\d+) bytes spill loads.*?"
    r"Used (?P<registers>\d+) registers(?P<rest>[^\n]*)",
    re.DOTALL,
)
_SHARED = re.compile(r"(\d+) bytes smem")


@dataclass(frozen=True)
class Resources:
    """What a kernel takes on one chip, as ptxas reports it.

    Args:
        arch: the chip, such as ``sm_90``.
        registers: 32-bit registers a thread.
        shared_bytes: static shared memory a block.
        spill_bytes: bytes of registers spilled to local memory, stores and loads.
        stack_bytes: local memory a thread for arrays and calls.
    """

    arch: str
    registers: int
    shared_bytes: int
    spill_bytes: int
    stack_bytes: int


@dataclass(frozen=True)
class Cubin:
    """Machine code for one chip.

    Args:
        path: the cubin on disk.
        arch: the chip it is for.
        lowered: name expression -> symbol in the cubin.
        signatures: name expression -> demangled function type.
        log: what NVRTC and ptxas said.
    """

    path: Path
    arch: str
    lowered: dict[str, str]
    signatures: dict[str, str]
    log: str

    def resources(self, expression: str) -> Resources:
        """Read a kernel's registers, shared memory and spills from the log."""
        symbol = self.lowered[expression]
        for match in _INFO.finditer(self.log):
            if match["name"] == symbol:
                shared = _SHARED.search(match["rest"])
                return Resources(
                    arch=self.arch,
                    registers=int(match["registers"]),
                    shared_bytes=int(shared[1]) if shared else 0,
                    spill_bytes=int(match["stores"]) + int(match["loads"]),
                    stack_bytes=int(match["stack"]),
                )
        raise ToolchainError(f"ptxas reported nothing of {expression} ({symbol}).")

    def sass(self, expression: str) -> str:
        """Disassemble one kernel."""
        result = subprocess.run(
            [disassembler(), "-sass", "-fun", self.lowered[expression], self.path],
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode:
            raise ToolchainError(f"cuobjdump failed: {result.stderr.strip()}")
        return result.stdout


def compile_cubin(
    source: str, *, filename: str, kernels: tuple[str, ...], arch: str
) -> Cubin:
    """Compile the kernels named, for one chip; the cubin is cached on disk.

    Args:
        source: the author's text, compiled as it is.
        filename: the name that messages carry.
        kernels: name expressions; a template instance is made for each.
        arch: ``sm_75`` … ``sm_90a`` …

    Raises:
        CompileError: with the author's lines.
        ToolchainError: where NVRTC or its headers are not installed.
    """
    arch = with_features(source, arch)
    key = digest(source, filename, *kernels, arch, repr(_OPTIONS), _toolchain())
    facts = cached(
        "cubin",
        key,
        ".json",
        lambda p: _compile(p, key, source, filename, kernels, arch),
    )
    meta = json.loads(facts.read_text())
    code = facts.with_suffix(".cubin")
    return Cubin(code, arch, meta["lowered"], meta["signatures"], meta["log"])


def with_features(source: str, arch: str) -> str:
    """Choose ``sm_90a`` where a source uses what only that variant assembles."""
    special = ("wgmma", "setmaxnreg", "cp.async.bulk.tensor")
    if arch == "sm_90" and any(word in source for word in special):
        return "sm_90a"
    return arch


def _compile(
    target: Path,
    key: str,
    source: str,
    filename: str,
    kernels: tuple[str, ...],
    arch: str,
) -> None:
    try:
        from cuda.core import Program, ProgramOptions  # 0.3 s: only when compiling
    except ImportError as error:
        raise ToolchainError(
            f"NVRTC, which compiles CUDA C++ for a GPU, cannot be reached: {error}. "
            "Wanted: the packages cuda-core and nvidia-cuda-nvrtc. Mend: run "
            "`make setup`, or pip install cuda-core cuda-bindings nvidia-cuda-nvrtc "
            "nvidia-cuda-runtime nvidia-cuda-cccl."
        ) from error

    probes = tuple(f"kw_signature_of<decltype({kernel})>" for kernel in kernels)
    log = io.StringIO()
    options = ProgramOptions(
        name=filename, arch=arch, include_path=list(include_folders()), **_OPTIONS
    )
    try:
        program = Program(source + _SIGNATURE_PROBE, "c++", options)
        code = program.compile("cubin", name_expressions=(*kernels, *probes), logs=log)
    except Exception as error:  # cuda.core raises its own private types
        text = f"{error}\n{log.getvalue()}"
        diagnostics = parse_nvrtc(text, filename)
        if diagnostics:
            raise compile_error(source, filename, diagnostics, text) from None
        if "NVRTC_ERROR" in text or "ptxas" in text:
            message = f"{filename} does not compile:\n{text}"
            raise CompileError(message, log=text) from None
        raise ToolchainError(
            f"NVRTC could not be used: {error}. Mend: run `make setup`."
        ) from error
    symbols = {name: symbol.decode() for name, symbol in code.symbol_mapping.items()}
    facts = {
        "lowered": {kernel: symbols[kernel] for kernel in kernels},
        "signatures": {
            kernel: _function_type(symbols[probe])
            for kernel, probe in zip(kernels, probes, strict=True)
        },
        "log": log.getvalue(),
    }
    binary = code.code if isinstance(code.code, bytes) else bytes(code.code)
    # The code first: whoever finds the facts finds the code beside them.
    cached("cubin", key, ".cubin", lambda p: p.write_bytes(binary))
    target.write_text(json.dumps(facts))


def _function_type(mangled: str) -> str:
    """``void kw_signature_of<void (float const*, int)>()`` -> the argument."""
    text = demangle(mangled)
    inner = text[text.index("kw_signature_of<") + len("kw_signature_of<") :]
    return inner[: inner.rindex(">")]


@cache
def _demangler() -> ctypes.CDLL:
    library = ctypes.CDLL("libstdc++.so.6")
    library.__cxa_demangle.restype = ctypes.c_void_p
    return library


def demangle(symbol: str) -> str:
    """Spell a mangled C++ name out, with the C++ runtime's own demangler."""
    status = ctypes.c_int()
    pointer = _demangler().__cxa_demangle(
        symbol.encode(), None, None, ctypes.byref(status)
    )
    if status.value != 0 or not pointer:
        return symbol
    text = ctypes.cast(pointer, ctypes.c_char_p).value or b""
    ctypes.CDLL(None).free(ctypes.c_void_p(pointer))
    return text.decode()


@cache
def _toolchain() -> str:
    """Identify the compiler and our own headers, for the cache's key."""
    from importlib.metadata import PackageNotFoundError, version

    names = ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12", "cuda-core")
    versions = []
    for name in names:
        try:
            versions.append(f"{name}={version(name)}")
        except PackageNotFoundError:
            continue
    ours = Path(include_folders()[0])
    headers = sorted(p for p in ours.rglob("*") if p.suffix in (".cuh", ".h"))
    return digest(*versions, *(p.read_bytes() for p in headers))
