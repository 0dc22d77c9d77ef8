"""Run a traced launch and write the report."""

from __future__ import annotations

import ctypes
import math
import os
import re
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch

from kernelwright.cuda.arguments import as_tensor, pack_arguments
from kernelwright.cuda.ctypes_map import ELEMENTS
from kernelwright.cuda.diagnostics import compile_error
from kernelwright.cuda.kernel import Launcher
from kernelwright.cuda.signature import Parameter, Signature, parse_signature
from kernelwright.cuda.source import find_kernels
from kernelwright.emulator.library import Library
from kernelwright.emulator.operations import BUSIEST_WARP, COUNTED
from kernelwright.emulator.symbols import Variable, variables_of
from kernelwright.emulator.tracing import RawTrace, run
from kernelwright.emulator.tracing import Request as Asked
from kernelwright.errors import ArgumentError, CompileError
from kernelwright.trace.face import Tracer
from kernelwright.trace.lines import line_accesses
from kernelwright.trace.log import RequestLog
from kernelwright.trace.memory import Buffer, GuardedMemory
from kernelwright.trace.names import (
    SharedVariables,
    constant_names,
    dynamic_name,
    parameter_names,
    short_name,
)
from kernelwright.trace.own_arrays import own_subscripts
from kernelwright.trace.places import Places
from kernelwright.trace.problems import problems_of
from kernelwright.trace.report import TraceReport
from kernelwright.trace.shapes import shapes_in, shared_elements
from kernelwright.trace.sharing import sharing_of
from kernelwright.trace.unwritten import is_unwritten

# A traced launch is interactive: one that takes longer does not end.
DEADLINE_S = 60.0
_MOST_LIBRARIES = 16

_libraries: OrderedDict[tuple[str, str, str], Library] = OrderedDict()


def library_of(source: str, filename: str, kernel: str) -> Library:
    """Build a source for the trace, or take it from the last few that were built."""
    key = (source, filename, kernel)
    if key not in _libraries:
        try:
            _libraries[key] = Library.build(
                source, filename=filename, kernels=(kernel,), traced=True
            )
        except CompileError as error:
            if not error.diagnostics:
                raise
            raise compile_error(
                source, filename, error.diagnostics, error.log
            ) from None
        while len(_libraries) > _MOST_LIBRARIES:
            _libraries.popitem(last=False)
    _libraries.move_to_end(key)
    return _libraries[key]


def trace(
    tracer: Tracer, launcher: Launcher, ranks: Sequence[tuple[Any, ...]]
) -> TraceReport:
    """Launch a kernel under the trace, with the arguments of each rank."""
    kernel = tracer.kernel
    library = library_of(kernel.source, kernel.module.name, kernel.name)
    signature = parse_signature(kernel.name, library.signatures[kernel.name])
    packed: list[list[bytes]] = []
    names: list[list[str]] = []
    for number, arguments in enumerate(ranks):
        packed.append(pack_arguments(signature, arguments, "cpu")[0])
        plain = parameter_names(kernel.source, kernel.name, len(arguments))
        of_rank = f"rank {number}'s " if len(ranks) > 1 else ""
        names.append([of_rank + name for name in plain])
    memory, passed = _guarded(signature, names, ranks, tracer.unwritten)
    count = len(signature.parameters)
    for buffer in passed:
        rank, place = divmod(buffer.position, count)
        packed[rank][place] = buffer.low.to_bytes(8, "little")
    spec, kept = library._spec(
        kernel.name, launcher.grid, launcher.block, launcher.shared, packed
    )
    seconds = os.environ.get("KERNELWRIGHT_DEADLINE_S")
    spec.deadline_s = float(seconds) if seconds else DEADLINE_S
    total = launcher.grid[0] * launcher.grid[1] * launcher.grid[2] * len(ranks)
    # Ranks wait for each other: none of their blocks can be left out.
    everything = tracer.blocks == "all" or len(ranks) > 1
    chosen = sampled(total, total if everything else int(tracer.blocks))
    variables = variables_of(library._path)
    readable = {v.name: library._runtime.demangle(v.name.encode()) for v in variables}
    own = _module_regions(library, variables, readable, kernel.source)
    _reset(library, own)
    # Lists of addresses are read as parameters are: nobody counts their bytes.
    listed = {
        buffer.low
        for buffer in passed
        if signature.parameters[buffer.position % count].pointer == 2
    }
    regions = [(low, high, low in listed, new) for low, high, new in memory.regions]
    regions += [(low, high, constant, False) for low, high, constant, _ in own]
    dynamic = dynamic_name(kernel.source)
    others = {k.name for k in find_kernels(kernel.source)} - {kernel.name.split("<")[0]}
    hidden = {name for name, shown in readable.items() if _is_ours(shown, dynamic)}
    # Another kernel's shared arrays are no part of this launch's memory.
    variables = tuple(v for v in variables if _owner(readable[v.name]) not in others)
    subscripts = own_subscripts(kernel.source)
    elements = shared_elements(kernel.source)
    at = [(subscript.line, subscript.column) for subscript in subscripts]
    asked = Asked(regions, chosen, variables, hidden, at)
    raw = run(library, kernel.name, spec, asked)
    del kept
    memory.copy_back()
    places = Places(
        memory.buffers,
        [(low, high, name) for low, high, _, name in own],
        SharedVariables(
            variables,
            {k: short_name(v) for k, v in readable.items() if k not in hidden},
            shapes_in(kernel.source),
            elements,
        ),
        dynamic,
        launcher.shared,
        launcher.grid,
        launcher.block,
        [region[:3] for region in regions],
        [
            name
            for each, arguments in zip(names, ranks, strict=True)
            for name, parameter, value in zip(
                each, signature.parameters, arguments, strict=True
            )
            if parameter.pointer and value is None
        ],
        len(ranks),
        subscripts,
        elements.get(dynamic, 0),
    )
    lines = _lines_of_all(library, raw)
    source = kernel.source.splitlines()
    return TraceReport(
        lines=line_accesses(raw.workers, lines, places, source),
        problems=problems_of(
            raw, lines, places, source, spec.deadline_s, library._line
        ),
        kernel=kernel.name,
        grid=launcher.grid,
        block=launcher.block,
        blocks_traced=len(chosen),
        blocks_total=total,
        source=kernel.source,
        unique_sectors=sum(raw.unique_sectors),
        flops=_share(tracer.flops, len(chosen), total),
        by_block=_by_block(raw, len(chosen), math.prod(launcher.block)),
        sharing=sharing_of(raw.shared, places.regions, memory.buffers, lines),
        printed=raw.printed,
        log=RequestLog(raw.workers, lines, places),
    )


def _by_block(raw: RawTrace, blocks: int, threads: int) -> dict[str, float]:
    """Say what a block does on average; of bytes under way, at each product.

    The busiest warp is the one of the whole launch.
    """
    sums = {name: sum(w.operations[name] for w in raw.workers) for name in COUNTED}
    done = {name: figure / blocks for name, figure in sums.items()}
    done[BUSIEST_WARP] = float(max(w.operations[BUSIEST_WARP] for w in raw.workers))
    # Summed up for the warp that multiplied: it has its share of the block's.
    warps = math.ceil(threads / 32)
    done["bytes under way at a product"] *= (
        warps / sums["matrix products"] * blocks if sums["matrix products"] else 0.0
    )
    return done


def _owner(shown: str) -> str:
    """Return the function that declares a variable: ``k`` of ``k(int)::tile``."""
    head = re.sub(r"<.*|\(.*", "", shown.removeprefix("void "))
    return head if "(" in shown else ""


def _is_ours(shown: str, dynamic: str) -> bool:
    """Whether a thread-local variable is the emulator's: a guard, a way to memory."""
    if shown.startswith(("guard variable", "__tls")) or shown == dynamic:
        return True
    return short_name(shown).startswith("kwemu")


def sampled(total: int, wanted: int) -> np.ndarray:
    """Return the numbers of the blocks to run: first, last, and evenly in between."""
    count = min(total, wanted)
    if count == 1:
        return np.zeros(1, np.uint64)
    return np.unique(np.linspace(0, total - 1, count).round().astype(np.uint64))


def _share(flops: int | None, traced: int, total: int) -> int | None:
    """Return what the traced blocks do of the launch's work."""
    return None if flops is None else round(flops * traced / total)


def _guarded(
    signature: Signature,
    names: list[list[str]],
    ranks: Sequence[tuple[Any, ...]],
    unwritten: tuple[str | int, ...],
) -> tuple[GuardedMemory, list[Buffer]]:
    """Copy what the ranks' pointers point to; say which buffers they point to."""
    known = [name.rsplit(" ", 1)[-1] for name in names[0]]
    unknown = [u for u in unwritten if u not in known and u not in range(len(known))]
    if unknown:
        raise ArgumentError(
            f"{signature.name}: unwritten names {unknown[0]!r}, which is no parameter; "
            f"there are: {', '.join(known)}."
        )
    tensors: list[tuple[int, str, int, bool, torch.Tensor]] = []
    lists: list[tuple[torch.Tensor, list[torch.Tensor]]] = []

    passed: list[int] = []
    reached: set[int] = set()

    def add(at: int, name: str, parameter: Parameter, value: Any) -> None:
        tensor, place = as_tensor(value), at % len(known)
        element = ELEMENTS.get(parameter.ctype)
        size = tensor.element_size() * (element.lanes if element else 1)
        fresh = known[place] in unwritten or place in unwritten or is_unwritten(value)
        tensors.append((at, name, size, fresh, tensor))

    for at, (name, parameter, value) in enumerate(
        triple
        for each, arguments in zip(names, ranks, strict=True)
        for triple in zip(each, signature.parameters, arguments, strict=True)
    ):
        if not parameter.pointer or value is None:
            continue
        if parameter.pointer == 1:
            passed.append(len(tensors))
            add(at, name, parameter, value)
            continue
        peers = [as_tensor(peer) for peer in value]
        for number, peer in enumerate(peers):
            if peer.data_ptr() not in reached:
                reached.add(peer.data_ptr())
                add(at, f"{known[at % len(known)]}[{number}]", parameter, peer)
        addresses = torch.zeros(len(peers), dtype=torch.int64)
        passed.append(len(tensors))
        tensors.append((at, name, 8, False, addresses))
        lists.append((addresses, peers))
    memory = GuardedMemory(tensors)
    for addresses, peers in lists:
        moved = [memory.moved(peer.data_ptr()) for peer in peers]
        memory.copy_of(addresses).copy_(torch.tensor(moved, dtype=torch.int64))
    return memory, [memory.buffers[number] for number in passed]


def _module_regions(
    library: Library,
    variables: tuple[Variable, ...],
    readable: dict[str, str],
    source: str,
) -> list[tuple[int, int, bool, str]]:
    """List the module's own variables: ``__constant__`` and ``__device__`` ones."""
    layout = library._layout
    if layout is None:
        return []
    constants = constant_names(source)
    found = []
    for variable in variables:
        name = short_name(readable[variable.name])
        hidden = re.match(r"kwemu|_ZT|_ZGV|DW\.|_", variable.name.removeprefix("_ZL"))
        if variable.thread_local or (hidden and name not in source):
            continue
        low = layout.load_address + variable.offset
        found.append((low, low + variable.size, name in constants, name))
    return found


_first_values: WeakKeyDictionary[Library, list[bytes]] = WeakKeyDictionary()


def _reset(library: Library, own: list[tuple[int, int, bool, str]]) -> None:
    """Give a module's own variables the values that they were loaded with."""
    if library not in _first_values:
        _first_values[library] = [
            ctypes.string_at(low, high - low) for low, high, *_ in own
        ]
        return
    for (low, high, constant, _), data in zip(own, _first_values[library], strict=True):
        if not constant and ctypes.string_at(low, high - low) != data:
            ctypes.memmove(low, data, high - low)


def _lines_of_all(library: Library, raw: RawTrace) -> dict[int, int]:
    """Find the source line of every address that was recorded."""
    pcs = {shared.pc for shared in raw.shared}
    for worker in raw.workers:
        pcs.update(int(pc) for pc in worker.sites["pc"])
        for name in ("pc", "other_pc"):
            pcs.update(int(pc) for pc in worker.problems[name])
    lines = dict(library.lines_of({pc for pc in pcs if pc}))
    for worker in raw.workers:
        for site in worker.sites[worker.sites["line"] > 0]:
            lines[int(site["pc"])] = int(site["line"])
    return lines
