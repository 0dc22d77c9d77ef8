"""The host's C++ compiler: which one, with which flags, and what it once compiled.

Two things are compiled ahead of any kernel and kept in the cache: the runtime, a shared
library, and the prelude, a precompiled header. Both are keyed by everything that went
into them, so a new compiler, processor or header makes new ones.
"""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import re
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from kernelwright.cache import cached, digest
from kernelwright.errors import ToolchainError

NATIVE = Path(__file__).parent / "native"
WRAPPERS = Path(__file__).parent.parent / "include"

# Every flag that is not obvious:
#   contract, no-math-errno, no-trapping-math   what nvcc assumes of floats as well
#   no-strict-aliasing, wrapv                   float4 views; indices that wrap
#   no-gnu-unique, visibility=hidden            a template's shared array is its own
#   no-finite-loops                             or an endless loop is removed, not run
#   stack-clash-protection                      a huge local array meets the guard page
#   no-plt                                      an address in the text is the author's
#   statement-frontiers                         an empty loop keeps its line
#   sanitize=return                             or a missing return runs on
COMMON_FLAGS = (
    "-std=c++17",
    "-O2",
    "-march=native",
    "-fPIC",
    "-fno-plt",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-strict-aliasing",
    "-fwrapv",
    "-fno-delete-null-pointer-checks",
    "-fvisibility=hidden",
    "-fno-finite-loops",
    "-fstack-clash-protection",
    "-fno-stack-protector",
    "-fno-exceptions",
    "-fno-asynchronous-unwind-tables",
    "-U_FORTIFY_SOURCE",
    "-g1",
)
GCC_FLAGS = (
    "-fno-gnu-unique",
    "-gstatement-frontiers",
    "-fno-isolate-erroneous-paths-dereference",
    "-fcf-protection=none",
    "-fsanitize=return",
    "-Winvalid-pch",
)
# What a sanitizer finds is an illegal instruction: nothing is called, nothing linked.
# Before version 13 g++ has no such flag for one sanitizer alone.
FAST_GCC_FLAGS = ("-fsanitize-undefined-trap-on-error",)
CLANG_FLAGS = (
    "-fcf-protection=none",
    "-fsanitize=return",
    "-fsanitize-trap=return",
    "-Wno-c++11-narrowing",
)
# A local variable that nobody set holds a wild value, and not the zero that happens to
# be there: a forgotten `= 0` must not come out right. Where it is set before it is read
# the optimiser drops this, and the course's kernels take no longer.
WILD_LOCALS = "-ftrivial-auto-var-init=pattern"
WILD_LOCALS_SINCE = 12  # of g++; every clang++ that will do has it
# g++ 12 writes masked moves of halves that its own assembler refuses. Older ones do not
# know these instructions, and need not be told.
NO_HALVES = "-mno-avx512fp16"
NO_HALVES_SINCE = 12
# The build that calls the trace's hooks before every access, and where ways part or
# meet. The optimiser may drop and reuse loads, as nvcc's does, but not join two lines'
# accesses into one, widen them, or jump into a hook (whose return address is the
# access's name).
TRACED_FLAGS = (
    "-DKWEMU_TRACED",
    "-fsanitize=thread",
    "-fsanitize-coverage=trace-pc",
    "-fno-optimize-sibling-calls",
)
TRACED_GCC_FLAGS = (
    "-fno-tree-vectorize",
    "-fno-tree-slp-vectorize",
    "-fno-store-merging",
    "-fno-code-hoisting",
    "-fno-crossjumping",
    "-fno-tree-tail-merge",
    "-fno-aggressive-loop-optimizations",
    # A short loop over registers is unrolled before the hooks are put in, and its
    # repeated loads are dropped, as nvcc drops them.
    "-O3",
    "--param=max-completely-peeled-insns=2000",
    "-fno-peel-loops",
    "-fno-ipa-cp-clone",
    "-fno-split-loops",
    "-fno-unswitch-loops",
    "-fno-version-loops-for-strides",
    "-fno-split-paths",
    # One copy of each stretch of code: where ways meet is a place, not several.
    "-freorder-blocks-algorithm=simple",
    # An unrolled loop past the end of a thread's own array touches registers, or the
    # stack, and no hook sees it. On a GPU it reads and overwrites who knows what.
    "-Werror=array-bounds",
    # And where only the run tells the index: runtime/trace_own_arrays.cpp is called.
    "-fsanitize=bounds",
)
TRACED_CLANG_FLAGS = (
    "-fsanitize-coverage=bb,no-prune",
    "-fno-vectorize",
    "-fno-slp-vectorize",
    "-mllvm",
    "-tsan-instrument-func-entry-exit=0",
    "-mllvm",
    "-tsan-instrument-read-before-write=1",
    "-mllvm",
    "-simplifycfg-sink-common=false",
)
# A learner's slip that a GPU would not forgive, and nothing that is only style.
WARNINGS = (
    "-Wuninitialized",
    "-Wreturn-type",
    "-Wformat",
    "-Wempty-body",
    "-Wparentheses",
    "-Wlogical-not-parentheses",
    "-Wunused-value",
    "-Wno-attributes",
    "-Wno-unknown-pragmas",
)
LINK_FLAGS = ("-pipe", "-shared", "-Wl,--hash-style=gnu", "-Wl,--build-id=none")
# A module finds libm and libstdc++ through the runtime, which is loaded before it:
# linking them again would take a quarter of the whole build.
GCC_LINK_FLAGS = ("-nostdlib", "-lgcc")


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler that was found on this machine."""

    path: str
    is_clang: bool
    version: str
    identity: str
    traced: bool = False
    fills_locals: bool = False
    knows_halves: bool = False

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags that the prelude and every kernel are compiled with."""
        flags = COMMON_FLAGS + (CLANG_FLAGS if self.is_clang else GCC_FLAGS)
        if self.fills_locals:
            flags += (WILD_LOCALS,)
        if self.knows_halves:
            flags += (NO_HALVES,)
        if self.traced:
            flags += TRACED_FLAGS
            flags += TRACED_CLANG_FLAGS if self.is_clang else TRACED_GCC_FLAGS
        elif not self.is_clang:
            flags += FAST_GCC_FLAGS
        return flags


def find_compiler(
    needed_by: str = "the emulator", any_processor: bool = False
) -> Compiler:
    """Return the compiler that ``CXX`` names, else g++, else clang++.

    Args:
        needed_by: what is to be compiled, as a message names it.
        any_processor: whether a processor of another kind will do.

    Raises:
        ToolchainError: there is none, or it is too old, or not for this processor.
    """
    if not any_processor and platform.machine() not in ("x86_64", "AMD64"):
        raise ToolchainError(
            f"the emulator runs on x86-64 and this processor is {platform.machine()}: "
            "use an x86-64 machine, a container for linux/amd64, or a GPU"
        )
    chosen, path = os.environ.get("CXX", ""), os.environ.get("PATH", "")
    return _find_compiler(chosen, path, needed_by)


@functools.lru_cache(maxsize=8)
def _find_compiler(chosen: str, search_path: str, needed_by: str) -> Compiler:
    names = [chosen] if chosen else ["g++", "clang++"]
    for name in names:
        path = shutil.which(name, path=search_path or None)
        if path is not None:
            return _describe(path, needed_by)
    wanted = f"CXX names {chosen!r}, which is not" if chosen else "neither is"
    raise ToolchainError(
        f"{needed_by} needs g++ 12 or newer, or clang++ 14 or newer: "
        f"{wanted} on the PATH. Mend, on Debian and Ubuntu: sudo apt-get install g++"
    )


def _describe(path: str, needed_by: str = "the emulator") -> Compiler:
    try:
        text = subprocess.run(
            [path, "--version"], capture_output=True, text=True, check=True, timeout=60
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise ToolchainError(f"{path} does not run: {error}") from error
    version = text.splitlines()[0] if text else "unknown"
    is_clang = "clang" in version
    found = re.search(r"(\d+)\.\d+", version.rsplit(")", 1)[-1] or version)
    major = int(found.group(1)) if found else 0
    least = 14 if is_clang else 10
    if 0 < major < least:
        raise ToolchainError(
            f"{path} is {version}; {needed_by} needs version {least} or newer"
        )
    real = os.path.realpath(path)
    size = os.stat(real).st_size
    return Compiler(
        path,
        is_clang,
        version,
        digest(version, real, str(size)),
        fills_locals=major >= (least if is_clang else WILD_LOCALS_SINCE),
        knows_halves=not is_clang and major >= NO_HALVES_SINCE,
    )


@functools.lru_cache(maxsize=1)
def processor() -> str:
    """Hash what ``-march=native`` looks at: a cache may be shared by machines."""
    lines: set[str] = set()
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith(("flags", "model\t", "cpu family", "vendor_id")):
                    lines.add(line)
    except OSError:
        lines.add(platform.processor())
    return digest(*sorted(lines))


@functools.lru_cache(maxsize=1)
def headers_digest() -> str:
    """Hash every header and runtime file of the emulator, and the wrappers."""
    parts: list[bytes] = []
    for root in (NATIVE, WRAPPERS):
        for path in sorted(p for p in root.rglob("*") if p.is_file()):
            parts += [str(path.relative_to(root)).encode(), path.read_bytes()]
    return digest(*parts)


def run_compiler(
    command: list[str], *, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the compiler in the C locale: its messages are read by a program."""
    environment = {**os.environ, "LC_ALL": "C", "LANGUAGE": "C"}
    # A user's CPATH would let other headers in, unknown to the cache's keys.
    for name in ("CPATH", "CPLUS_INCLUDE_PATH", "GCC_COLORS", "CFLAGS"):
        environment.pop(name, None)
    try:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            cwd=cwd,
            env=environment,
            timeout=300,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ToolchainError(f"the compiler does not run: {error}") from error


def _build(command: list[str], what: str) -> None:
    done = run_compiler(command)
    if done.returncode != 0:
        raise ToolchainError(
            f"the emulator's {what} does not compile with {command[0]}: set CXX to "
            f"another compiler. It said:\n{done.stderr[-2000:]}"
        )


def prepare(compiler: Compiler) -> None:
    """Compile the runtime and the prelude if the cache lacks them, both at once."""
    with ThreadPoolExecutor(1) as pool:
        runtime = pool.submit(runtime_library, compiler)
        prelude_options(compiler)
        runtime.result()


def runtime_library(compiler: Compiler) -> Path:
    """Return the runtime as a shared library, compiled on first use."""

    def produce(target: Path) -> None:
        flags = ["-std=c++17", "-O2", "-march=native", "-fPIC", "-g1", "-pthread"]
        flags += ["-fno-exceptions", "-fvisibility=hidden", "-fno-plt", "-shared"]
        flags += ["-ftls-model=initial-exec"]
        source = NATIVE / "runtime" / "runtime.cpp"
        command = [compiler.path, *flags, f"-I{NATIVE / 'include'}", str(source)]
        _build([*command, "-o", str(target)], "runtime")

    key = digest("runtime", compiler.identity, processor(), headers_digest())
    return cached("emulator", key, ".so", produce)


def _places_and_times() -> list[str]:
    """Name each header with its time: clang refuses a prelude whose headers moved."""
    headers = [p for root in (NATIVE, WRAPPERS) for p in sorted(root.rglob("*"))]
    return [f"{path} {path.stat().st_mtime_ns}" for path in headers if path.is_file()]


def prelude_options(compiler: Compiler) -> list[str]:
    """Return the options that put the precompiled prelude before a source."""
    what = "traced prelude" if compiler.traced else "prelude"
    key = digest(
        what,
        compiler.identity,
        processor(),
        headers_digest(),
        *compiler.flags,
        *(_places_and_times() if compiler.is_clang else ()),
    )
    stub = cached("emulator", key, ".h", _write_stub)
    suffix = ".h.pch" if compiler.is_clang else ".h.gch"

    def produce(target: Path) -> None:
        command = [compiler.path, *compiler.flags, *include_options()]
        command += ["-x", "c++-header", str(stub), "-o", str(target)]
        _build(command, "prelude")

    compiled = cached("emulator", key, suffix, produce)
    _forget_old(compiled)
    last = ["-include", "kwemu/same_view.h"]
    if compiler.is_clang:
        return ["-include-pch", str(compiled), *last]
    return ["-include", str(stub), *last]


@functools.lru_cache(maxsize=4)
def _forget_old(newest: Path) -> None:
    """Delete preludes of older compilers and versions: each takes some 20 MB."""
    month_ago = time.time() - 30 * 24 * 3600
    for path in newest.parent.parent.glob(f"*/*{newest.suffix}"):
        with contextlib.suppress(OSError):
            if path != newest and path.stat().st_mtime < month_ago:
                path.unlink()


def _write_stub(target: Path) -> None:
    target.write_text("#include <kwemu/prelude.h>\n")


def include_options() -> list[str]:
    """Return the include path: CUDA's own header names, then the ``kw`` wrappers."""
    return [f"-I{NATIVE / 'include'}", f"-I{WRAPPERS}"]
