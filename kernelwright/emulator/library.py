"""A compiled CUDA C++ source on the CPU: build it, ask its signatures, launch it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernelwright.cache import cached, digest
from kernelwright.emulator import toolchain
from kernelwright.emulator.diagnostics import parse
from kernelwright.emulator.faults import fault_of
from kernelwright.emulator.launch import Entry, Outcome, Spec, load_runtime
from kernelwright.emulator.lines import source_line, source_lines
from kernelwright.emulator.module import (
    compile_module,
    load_module,
    pack,
    safe_name,
    tail_of,
)
from kernelwright.emulator.shared_memory import GAP, MAX_STATIC, too_much
from kernelwright.emulator.source import initialised_shared, line_of, prepare
from kernelwright.emulator.traced_source import with_whole_structs
from kernelwright.errors import (
    CompileError,
    Diagnostic,
    KernelWarning,
    LaunchError,
    ToolchainError,
)

# More workers than this would need more mappings (a stack and a guard page for each of
# 1,024 threads) than Linux gives a process by default.
MAX_WORKERS = 16
MAX_SHARED = 227 * 1024
_SLICE_S = 0.05
_PRINT_NOTE = "\n[printf output was cut at 1 MB]\n"

Dimensions = Sequence[int]


class Library:
    """CUDA C++ compiled by the host's compiler, one fiber a CUDA thread.

    Build one with ``Library.build``; launches may come from several Python threads at
    once, and after ``os.fork`` from the child as well.

    Args:
        signatures: each kernel's name expression and its C++ type, as in
            ``void (float const*, int)``.
        warnings: the compiler's warnings, on the author's lines.
    """

    def __init__(
        self,
        path: Path,
        filename: str,
        kernels: Sequence[str],
        poison: bool,
        remarks: tuple[Diagnostic, ...],
    ) -> None:
        self._runtime = load_runtime(
            lambda: toolchain.runtime_library(toolchain.find_compiler())
        )
        self._path = path
        self._filename = filename
        self._poison = poison
        self._lines: dict[int, int] = {}
        self.warnings = remarks
        self._module = load_module(path)
        self._entries = {
            name: Entry.in_dll(self._module, f"kwemu_entry_{number}")
            for number, name in enumerate(kernels)
        }
        self.signatures = {
            name: readable_type(self._runtime.demangle(entry.type))
            for name, entry in self._entries.items()
        }
        self._layout = None
        if self._entries:
            first = next(iter(self._entries.values()))
            self._layout = self._runtime.layout(first.thunk)

    @classmethod
    def build(
        cls,
        source: str,
        *,
        filename: str,
        kernels: Sequence[str],
        traced: bool = False,
    ) -> Library:
        """Compile a source, or find it compiled in the cache.

        Args:
            source: CUDA C++, as NVRTC takes it.
            filename: how messages name the source.
            kernels: C++ name expressions of ``__global__`` functions, such as
                ``"vector_add"``, ``"ns::k"`` or ``"tile<float, 16>"``.
            traced: build for ``kernelwright.emulator.tracing``, which records every
                access; such a library's plain launches work too, but slowly.

        Raises:
            CompileError: the source does not compile; its diagnostics carry the
                author's lines.
            ToolchainError: this machine has no compiler that can do it.
        """
        compiler = replace(toolchain.find_compiler(), traced=traced)
        prepared = prepare(source)
        name = safe_name(filename)
        initialised = initialised_shared(prepared.masked)
        if initialised is not None:
            message = (
                "a __shared__ variable has no initial value: assign it in one thread, "
                "then __syncthreads()"
            )
            place = line_of(source, initialised)
            raise CompileError(
                f"{name} does not compile\nline {place}: {message}",
                (Diagnostic("error", place, 0, message),),
            )
        tail = tail_of(kernels)
        key = digest(
            f"traced module, {GAP} before each array" if traced else "module",
            prepared.text,
            name,
            tail,
            compiler.identity,
            toolchain.processor(),
            toolchain.headers_digest(),
            *compiler.flags,
        )
        text = prepared.text + tail
        whole = with_whole_structs(prepared.text, prepared.masked)
        log: list[str] = []

        def produce(target: Path) -> None:
            if traced and whole != prepared.text:
                with contextlib.suppress(CompileError):
                    compile_module(
                        compiler, whole + tail, name, target, source, kernels
                    )
                    return
            log.append(compile_module(compiler, text, name, target, source, kernels))

        try:
            path = cached("emulator", key, ".so", produce)
        except OSError as error:
            raise ToolchainError(
                f"the cache cannot be written: {error}. Set KERNELWRIGHT_CACHE to a "
                "folder that can"
            ) from error
        remarks = parse(_kept(path, log), name, source)
        library = cls(path, name, kernels, not prepared.has_global_dynamic, remarks)
        library._check_shared_memory(name)
        return library

    def launch(
        self,
        kernel: str,
        grid: Dimensions,
        block: Dimensions,
        shared_bytes: int,
        arguments: Sequence[Any],
        *,
        deadline_s: float | None = None,
    ) -> str:
        """Run a kernel to its end and return what it printed.

        Args:
            kernel: one of the name expressions that the library was built with.
            grid: how many blocks along x, y, z; missing ones are 1.
            block: how many threads along x, y, z.
            shared_bytes: dynamic shared memory of a block, in bytes.
            arguments: for each parameter its bytes, or a ctypes value.
            deadline_s: give up after so many seconds; None takes the environment's
                ``KERNELWRIGHT_DEADLINE_S``, and without it there is no deadline.

        Raises:
            LaunchError: no GPU could make this launch either.
            KernelFault: the kernel did something that ends it.
            KernelDeadlock: the threads of a block wait for each other.
            KernelTimeout: the deadline passed.
        """
        ranks = [arguments]
        return self.launch_ranks(
            kernel, grid, block, shared_bytes, ranks, deadline_s=deadline_s
        )

    def launch_ranks(
        self,
        kernel: str,
        grid: Dimensions,
        block: Dimensions,
        shared_bytes: int,
        ranks: Sequence[Sequence[Any]],
        *,
        deadline_s: float | None = None,
    ) -> str:
        """Run a kernel on several ranks at once, and return what all printed.

        Args:
            kernel: one of the name expressions that the library was built with.
            grid: how many blocks each rank has along x, y, z.
            block: how many threads along x, y, z.
            shared_bytes: dynamic shared memory of a block, in bytes.
            ranks: the arguments of each.
            deadline_s: as of ``launch``.

        Raises:
            LaunchError, KernelFault: as ``launch`` does; or more blocks in all than
                can run at once.
        """
        spec, kept = self._spec(kernel, grid, block, shared_bytes, ranks)
        spec.deadline_s = _deadline() if deadline_s is None else deadline_s
        try:
            return self._run(kernel, spec)
        finally:
            del kept

    def _spec(
        self,
        kernel: str,
        grid: Dimensions,
        block: Dimensions,
        shared_bytes: int,
        ranks: Sequence[Sequence[Any]],
    ) -> tuple[Spec, list[Any]]:
        """Write a launch down for the runtime; the second value must outlive it."""
        entry = self._entries.get(kernel)
        if entry is None or self._layout is None:
            raise LaunchError(
                f"this library has no kernel {kernel!r}; it has "
                + (", ".join(self._entries) or "none")
            )
        spec = Spec()
        spec.thunk = entry.thunk
        packed = [pack(kernel, entry, arguments) for arguments in ranks]
        spec.ranks, spec.argument_count = len(ranks), len(ranks[0])
        pointers = (ctypes.c_void_p * max(1, spec.ranks * spec.argument_count))(
            *(
                pointer
                for _, of_rank in packed
                for pointer in of_rank[: spec.argument_count]
            )
        )
        spec.arguments = ctypes.addressof(pointers)
        spec.grid[:] = _three(grid)
        spec.block[:] = _three(block)
        _check_extents(kernel, spec, shared_bytes)
        spec.shared_bytes = shared_bytes
        spec.poison = int(self._poison)
        for field in (
            "text_begin",
            "text_end",
            "load_address",
            "tls_module",
            "tls_bytes",
        ):
            setattr(spec, field, getattr(self._layout, field))
        return spec, [packed, pointers]

    def _wait(self, kernel: str, spec: Spec) -> tuple[Outcome, str]:
        """Launch, wait for the end, and return how it ended and what it printed."""
        runtime = self._runtime
        handle = runtime.start(ctypes.byref(spec), _workers_for(kernel, spec))
        if not handle:
            raise LaunchError(f"{kernel}: no thread could be started to run it")
        try:
            while not runtime.wait(handle, _SLICE_S):
                pass  # between two waits Python delivers a Ctrl-C
        except BaseException:
            runtime.abandon(handle)
            while not runtime.wait(handle, _SLICE_S):
                pass
            runtime.free(handle)
            raise
        outcome = Outcome.from_buffer_copy(runtime.outcome(handle).contents)
        printed = _printed(outcome)
        runtime.free(handle)
        return outcome, printed

    def _run(self, kernel: str, spec: Spec) -> str:
        outcome, printed = self._wait(kernel, spec)
        fault = fault_of(outcome, kernel, self._line, spec.deadline_s)
        early_exit = outcome.early_exit_line
        if fault is not None:
            fault.printed = printed
            raise fault
        if early_exit:
            warnings.warn(
                f"{kernel}, line {early_exit}: at this __syncthreads some threads of "
                "the block had already returned. It counts them as arrived; better to "
                "keep every thread until the last barrier, and guard the work instead",
                KernelWarning,
                stacklevel=3,
            )
        return printed

    def _check_shared_memory(self, name: str) -> None:
        total = self._layout.tls_bytes if self._layout else 0
        excess = too_much(self._path, total)
        if excess is not None:
            owner, size = excess
            raise CompileError(
                f"{name} does not compile\n{owner} declares {size} bytes of __shared__ "
                f"variables; a GPU takes at most {MAX_STATIC} (48 KB). Make them "
                "smaller, or take dynamic shared memory, of which a block has 227 KB"
            )

    def lines_of(self, pcs: Iterable[int]) -> dict[int, int]:
        """Return the author's line of each address behind a call, where known."""
        asked = [pc for pc in pcs if pc not in self._lines]
        # An access that the optimiser moved has no line; what stands behind it does.
        for step in (-1, 0, 4, 9, 16):
            left = [pc for pc in asked if not self._lines.get(pc)]
            found = source_lines(self._path, self._filename, [p + step for p in left])
            self._lines.update({pc: found.get(pc + step, 0) for pc in left})
        return self._lines

    def _line(self, pc: int) -> int:
        return source_line(self._path, self._filename, pc)


def _kept(module: Path, log: list[str]) -> str:
    """Keep what the compiler said beside the module; return it also the next time."""
    place = module.with_suffix(".log")
    with contextlib.suppress(OSError):
        if not log:
            return place.read_text() if place.exists() else ""
        if log[0].strip():
            place.write_text(log[0])
    return "".join(log)


def readable_type(text: str) -> str:
    """Drop the emulator's own namespaces from a type's name."""
    return re.sub(r"\bkwemu_\w+::", "", text)


def worker_count() -> int:
    """Return how many blocks run at once: this process's cores, at most 16."""
    chosen = os.environ.get("KERNELWRIGHT_THREADS", "")
    if chosen.isdigit() and int(chosen) > 0:
        return min(int(chosen), MAX_WORKERS)
    return min(len(os.sched_getaffinity(0)), MAX_WORKERS)


def _workers_for(kernel: str, spec: Spec) -> int:
    """Return how many blocks run at once: of ranks, which wait for each other, all."""
    if spec.ranks == 1:
        return worker_count()
    blocks = spec.ranks * spec.grid[0] * spec.grid[1] * spec.grid[2]
    if blocks > MAX_WORKERS:
        raise LaunchError(
            f"{kernel}: {spec.ranks} ranks of {blocks // spec.ranks} blocks each are "
            f"{blocks} blocks, which have to run at once, and the emulator runs at "
            f"most {MAX_WORKERS}: launch fewer blocks"
        )
    return int(blocks)


def _deadline() -> float:
    text = os.environ.get("KERNELWRIGHT_DEADLINE_S", "")
    try:
        return max(float(text), 0.0) if text else 0.0
    except ValueError:
        return 0.0


def _three(extents: Dimensions) -> tuple[int, int, int]:
    x, y, z = (*extents, 1, 1)[:3]
    return int(x), int(y), int(z)


def _check_extents(kernel: str, spec: Spec, shared_bytes: int) -> None:
    bx, by, bz = spec.block
    threads = bx * by * bz
    if not 0 < threads <= 1024 or bz > 64:
        raise LaunchError(
            f"{kernel}: a block of {bx} x {by} x {bz} = {threads} threads; a block has "
            "1 to 1024 threads, at most 64 of them along z"
        )
    gx, gy, gz = spec.grid
    if 0 in (gx, gy, gz) or gx > 2**31 - 1 or gy > 65535 or gz > 65535:
        raise LaunchError(
            f"{kernel}: a grid of {gx} x {gy} x {gz} blocks; it has at least one block "
            "along each axis, at most 2147483647 along x and 65535 along y and z"
        )
    if not 0 <= shared_bytes <= MAX_SHARED:
        raise LaunchError(
            f"{kernel}: {shared_bytes} bytes of dynamic shared memory; a block has at "
            f"most {MAX_SHARED} (227 KB)"
        )


def _printed(outcome: Outcome) -> str:
    if not outcome.printed_bytes:
        return ""
    data = ctypes.string_at(outcome.printed, outcome.printed_bytes)
    return data.decode(errors="replace") + (_PRINT_NOTE if outcome.print_cut else "")
