"""Run a kernel under the trace and bring what was recorded to Python."""

from __future__ import annotations

import ctypes
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernelwright.emulator.launch import Outcome, Spec
from kernelwright.emulator.operations import COUNTED, OPERATIONS
from kernelwright.emulator.symbols import Variable

# Of each access in the source, this many requests are kept whole for pictures, and of a
# launch this many in all: at 300 bytes each they take at most 5 MB a worker.
LOGGED_EACH = 256
LOGGED_ALL = 16384

LOAD, STORE, ATOMIC, ASYNC_LOAD, ASYNC_STORE, MATRIX_LOAD = range(6)
STATIC_SHARED, DYNAMIC_SHARED, NOWHERE = -1, -2, 0x7FFFFFFF
RACE, OUT_OF_BOUNDS, MISALIGNED, UNWRITTEN = 1, 2, 3, 4
DIVERGENT_BARRIER, ABSENT_LANE, EARLY_EXIT, OWN_ARRAY = 5, 6, 7, 8


class Region(ctypes.Structure):
    """Memory that a launch may touch; ``Region`` in runtime/trace.h."""

    _fields_ = [
        ("low", ctypes.c_uint64),
        ("high", ctypes.c_uint64),
        ("constant", ctypes.c_uint32),
        ("unwritten", ctypes.c_uint32),
    ]


class TraceSpec(ctypes.Structure):
    """What is traced; ``TraceSpec`` in runtime/trace.h."""

    _fields_ = [
        ("regions", ctypes.POINTER(Region)),
        ("blocks", ctypes.c_void_p),
        ("tls_kind", ctypes.c_void_p),
        ("subscripts", ctypes.c_void_p),
        ("image_low", ctypes.c_uint64),
        ("image_high", ctypes.c_uint64),
        ("region_count", ctypes.c_uint32),
        ("block_count", ctypes.c_uint32),
        ("log_each", ctypes.c_uint32),
        ("log_all", ctypes.c_uint32),
        ("subscript_count", ctypes.c_uint32),
    ]


class TraceResult(ctypes.Structure):
    """What one worker recorded; ``TraceResult`` in runtime/trace.h."""

    _fields_ = [
        ("sites", ctypes.c_void_p),
        ("log", ctypes.c_void_p),
        ("problems", ctypes.c_void_p),
        ("site_count", ctypes.c_uint64),
        ("log_count", ctypes.c_uint64),
        ("problem_count", ctypes.c_uint64),
        ("static_low", ctypes.c_uint64),
        ("dynamic_low", ctypes.c_uint64),
        ("operations", ctypes.POINTER(ctypes.c_uint64)),
    ]


class SharingResult(ctypes.Structure):
    """Who touched the same of a region; ``SharingResult`` in runtime/trace.h."""

    _fields_ = [
        ("rows", ctypes.c_void_p),
        ("row_count", ctypes.c_uint64),
        ("met_from", ctypes.c_uint64),
        ("pc", ctypes.c_uint64),
        ("other_pc", ctypes.c_uint64),
        ("address", ctypes.c_uint64),
    ]


SITE = np.dtype(
    [
        ("pc", "u8"), ("place", "i4"), ("op", "u4"), ("width", "u4"), ("logged", "u4"),
        ("line", "i4"), ("uneven", "u4"), ("sample", "u8"), ("requests", "u8"),
        ("lanes", "u8"), ("sectors", "u8"),
        ("ideal_sectors", "u8"), ("wavefronts", "u8"), ("ideal_wavefronts", "u8"),
        ("repeats", "u8"),
    ]
)  # fmt: skip
LOG = np.dtype(
    [
        ("site", "u4"), ("mask", "u4"), ("warp", "u4"), ("occurrence", "u4"),
        ("block", "u8"), ("order", "u8"), ("address", "u8", (32,)),
    ]
)  # fmt: skip
PROBLEM = np.dtype(
    [
        ("kind", "i4"), ("place", "i4"), ("line", "i4"), ("other_line", "i4"),
        ("pc", "u8"), ("other_pc", "u8"), ("address", "u8"), ("block", "u8"),
        ("other_block", "u8"), ("thread", "u4"), ("other_thread", "u4"), ("op", "u4"),
        ("other_op", "u4"), ("width", "u4"), ("mask", "u4"), ("subscript", "u4"),
        ("extent", "u4"), ("narrow", "u8"), ("count", "u8"),
    ]
)  # fmt: skip
SHARING = np.dtype([("address", "u8"), ("block", "u8"), ("thread", "u4"), ("op", "u4")])


@dataclass(frozen=True)
class Recorded:
    """What one worker saw; the arrays have the layouts above.

    ``operations`` are the counted ones, by name.
    """

    sites: np.ndarray
    log: np.ndarray
    problems: np.ndarray
    static_low: int
    dynamic_low: int
    operations: dict[str, int]


@dataclass(frozen=True)
class Shared:
    """What threads have in common of one region.

    Args:
        watched: who touched the watched words, with the layout above.
        met: who stored where stores met.
        pc, other_pc: of two stores of different threads that met.
        address: where, the lowest such; 0 if none did.
    """

    watched: np.ndarray
    met: np.ndarray
    pc: int
    other_pc: int
    address: int


@dataclass(frozen=True)
class RawTrace:
    """A traced launch as the runtime left it.

    Args:
        workers: one record for each worker that ran a block.
        unique_sectors: for each region, how many of its sectors were touched.
        shared: for each region, what threads touched alike.
        outcome: how the launch ended.
        printed: what the kernel's printf wrote.
    """

    workers: list[Recorded]
    unique_sectors: list[int]
    shared: list[Shared]
    outcome: Outcome
    printed: str


@dataclass
class Request:
    """What is to be traced: the memory, the blocks, and how much is kept.

    Args:
        regions: low and high address of each buffer, whether it is constant memory,
            whether its bytes count as never written.
        blocks: numbers of the blocks to run, x fastest.
        variables: the module's own.
        hidden: names of those that are the emulator's and not the author's.
        subscripts: line and column of each bracket by which a thread's own array is
            indexed, in rising order. What runs past its end there is reported.
    """

    regions: Sequence[tuple[int, int, bool, bool]]
    blocks: np.ndarray
    variables: Sequence[Variable] = field(default=())
    hidden: Container[str] = field(default=())
    subscripts: Sequence[tuple[int, int]] = field(default=())


def run(library: Any, kernel: str, spec: Spec, asked: Request) -> RawTrace:
    """Launch under the trace and wait; a fault of the kernel is in the outcome."""
    runtime, layout = library._runtime, library._layout
    regions = (Region * max(len(asked.regions), 1))()
    for number, (low, high, constant, unwritten) in enumerate(asked.regions):
        regions[number] = Region(low, high, int(constant), int(unwritten))
    blocks = np.ascontiguousarray(asked.blocks, dtype=np.uint64)
    kinds = tls_kinds(asked.variables, asked.hidden, spec.tls_bytes)
    places = [line << 32 | column for line, column in asked.subscripts]
    subscripts = np.array(places, dtype=np.uint64)
    wanted = TraceSpec(
        regions, blocks.ctypes.data, 0, subscripts.ctypes.data, layout.load_address,
        layout.image_end, len(asked.regions), len(blocks), LOGGED_EACH, LOGGED_ALL,
        len(subscripts),
    )  # fmt: skip
    trace = runtime.trace_new(ctypes.byref(wanted))
    try:
        runtime.trace_layout(trace, kinds.ctypes.data, len(kinds))
        spec.trace = trace
        outcome, printed = library._wait(kernel, spec)
        workers = [
            _recorded(runtime, trace, number)
            for number in range(runtime.trace_workers(trace))
        ]
        unique = [
            int(runtime.trace_unique_sectors(trace, number))
            for number in range(len(asked.regions))
        ]
        shared = [
            _shared(runtime, trace, number) for number in range(len(asked.regions))
        ]
    finally:
        runtime.trace_free(trace)
    return RawTrace(workers, unique, shared, outcome, printed)


def tls_kinds(
    variables: Sequence[Variable], hidden: Container[str], size: int
) -> np.ndarray:
    """Say of each byte of the thread-local segment whose it is.

    0: nobody's; 1: a ``__shared__`` variable's; 2: the emulator's own.
    """
    kinds = np.zeros(size, np.uint8)
    for variable in variables:
        if not variable.thread_local:
            continue
        kind = 2 if variable.name in hidden else 1
        kinds[variable.offset : variable.offset + variable.size] = kind
    return kinds


def _recorded(runtime: Any, trace: int, number: int) -> Recorded:
    result = TraceResult()
    runtime.trace_result(trace, number, ctypes.byref(result))
    return Recorded(
        _copied(result.sites, result.site_count, SITE),
        _copied(result.log, result.log_count, LOG),
        _copied(result.problems, result.problem_count, PROBLEM),
        int(result.static_low),
        int(result.dynamic_low),
        {
            name: sum(
                result.operations[op.number]
                for op in OPERATIONS
                if op.counted_as == name
            )
            for name in COUNTED
        },
    )


def _shared(runtime: Any, trace: int, region: int) -> Shared:
    result = SharingResult()
    runtime.trace_sharing(trace, region, ctypes.byref(result))
    rows = _copied(result.rows, result.row_count, SHARING)
    met_from = int(result.met_from)
    return Shared(
        rows[:met_from],
        rows[met_from:][rows["op"][met_from:] == STORE],
        int(result.pc),
        int(result.other_pc),
        int(result.address),
    )


def _copied(address: int | None, count: int, layout: np.dtype[Any]) -> np.ndarray:
    if not count or not address:
        return np.zeros(0, layout)
    return np.frombuffer(ctypes.string_at(address, count * layout.itemsize), layout)
