"""What every reference kernel takes on five chips: ``python -m benchmarks.resources``.

Registers, shared memory and spills, as the compiler itself reports them: no GPU is
needed, and nothing is timed. A cell that cannot be says *n/a* and why. CI holds the
stored table against the sources (``tests/solutions/test_resources.py``).

A kernel that is no template is found by itself. An instance of a template is named in
``INSTANCES``; dynamic shared memory, which only a launch knows, in ``DYNAMIC``.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from benchmarks._store import RESULTS
from kernelwright.cuda.nvrtc import compile_cubin
from kernelwright.cuda.source import find_kernels
from kernelwright.errors import CompileError
from solutions import matmul
from solutions.flash_attention import rungs as flash_rungs
from solutions.int4 import product as int4
from solutions.moe import scan
from solutions.tensor_cores import tiles

PATH = RESULTS / "resources.json"
ROOT = Path(__file__).parents[1]
SOLUTIONS = ROOT / "solutions"
FAMILIES = (
    "vector_add",
    "transpose",
    "reduction",
    "layernorm",
    "matmul",
    "tensor_cores",
    "softmax",
    "flash_attention",
    "fusion",
    "epilogue",
    "int4",
    "moe",
)

# Shared memory that one block may have, in bytes: CUDA C++ Programming Guide, technical
# specifications by compute capability.
SHARED = {
    "sm_75": 64 * 1024,
    "sm_80": 163 * 1024,
    "sm_86": 99 * 1024,
    "sm_89": 99 * 1024,
    "sm_90": 227 * 1024,
}
STATIC = 48 * 1024
"""What ``__shared__`` arrays of a fixed size may come to, on every chip."""

_LAYOUTS = ((True, False), (True, True), (False, False), (False, True))


def _matmul_instances() -> Iterator[tuple[str, int]]:
    """Name the plans of ``matmul``, with their dynamic shared memory."""
    for by_k in _LAYOUTS:
        plan = matmul.PIPELINED
        name = plan.expression(torch.float32, *by_k, True)
        yield name, plan.shared_bytes(*by_k)
    yield (
        matmul.PIPELINED.expression(torch.float32, True, False, False),
        (matmul.PIPELINED.shared_bytes(True, False)),
    )
    for plan in (matmul.MEDIUM, matmul.FLAT, matmul.SQUARE, matmul.TINY):
        for b_by_k in (True, False):
            name = plan.expression(torch.float32, True, b_by_k, True)
            yield name, plan.shared_bytes(True, b_by_k)
    for plan in (matmul.LARGE, matmul.SMALL):
        for wide in (True, False):
            yield plan.expression(torch.float32, True, False, wide), 0
    yield matmul.DOUBLE.expression(torch.float64, True, False, True), 0


def _gemm_instances() -> Iterator[tuple[str, int]]:
    """Name the plans of ``gemm``, with their dynamic shared memory."""
    for dtype in (torch.float16, torch.bfloat16):
        for plan in (tiles.LARGE, tiles.SMALL):
            yield plan.expression(dtype, dtype, (True, True), True), plan.shared_bytes


def _int4_many() -> Iterator[str]:
    """Name the plans of ``int4_many``, by how many tiles of 8 tokens a block has."""
    for tiles_of_tokens in (1, 2, 4, 8):
        plan = int4.Many(tiles_of_tokens, splits=1)
        yield (
            f"int4_many<__half, {plan.token_tiles}, {plan.warps}, {plan.row_tiles}, "
            f"{plan.stages}>"
        )


def _int4_hopper() -> Iterator[tuple[str, int]]:
    """Name the launches of ``int4_many_hopper``, with their dynamic shared memory."""
    for token_tiles, groups in ((1, 2), (2, 1)):
        plan = int4.Hopper(token_tiles, 2, groups)
        yield (
            f"int4_many_hopper<__half, {token_tiles}, {plan.splits}, {plan.stages}, "
            f"{groups}>",
            plan.shared,
        )


_INT4_HOPPER = dict(_int4_hopper())
_MATMUL, _GEMM = dict(_matmul_instances()), dict(_gemm_instances())

# By family and file: which instances of its templates are launched.
_FLASH = dict(flash_rungs.mma_instances())

INSTANCES: dict[str, tuple[str, ...]] = {
    "vector_add/any_dtype": (
        "packed_add<float>",
        "packed_add<__half>",
        "packed_saxpy<float>",
        "packed_saxpy<double>",
        "scalar_add<float>",
        "scalar_saxpy<float>",
    ),
    "flash_attention/mma": tuple(_FLASH),
    "transpose/any_size": (
        "transpose_staged<int, 16>",
        "transpose_staged<short, 16>",
        "transpose_registers<int, 16, 4, 1>",
        "transpose_any<int>",
    ),
    "reduction/any_dim": (
        "sum_pieces<float, Total, 4>",
        "sum_short<float, Squares, 32, true>",
        "sum_columns<float, Magnitudes, 4>",
        "sum_pieces<__nv_bfloat16, Total, 4>",
        "sum_short<__nv_bfloat16, Squares, 32, true>",
        "sum_columns<__nv_bfloat16, Magnitudes, 8>",
    ),
    "reduction/in_flight": ("sum_in_flight<2>", "sum_in_flight<4>"),
    "layernorm/forward": (
        "norm_rows<float, 4, 512, 1, 4, true, false, false>",
        "norm_rows<__nv_bfloat16, 8, 256, 1, 4, true, false, false>",
        "norm_rows<__nv_bfloat16, 8, 64, 1, 2, true, true, false>",
    ),
    "layernorm/backward": (
        "norm_backward<float, 4, 512, 1, 4, 2, 1, true, true, false, false>",
        "norm_backward<float, 4, 32, 4, 8, 2, 2, true, true, false, false>",
        "norm_backward<__nv_bfloat16, 8, 512, 1, 2, 2, 1, true, true, false, false>",
        "add_partials<float>",
    ),
    "matmul/any_shape": tuple(_MATMUL),
    "tensor_cores/gemm": tuple(_GEMM),
    # With groups of 128, and of 64.
    "int4/few": tuple(
        f"int4_few<__half, {int4.Few(1).token_tiles}, {int4.Few(1).warps}, {steps}, "
        f"{int4.Few(1).depth}>"
        for steps in (2, 1)
    ),
    "int4/many": tuple(_int4_many()),
    "int4/many_hopper": tuple(_INT4_HOPPER),
    "int4/restore": ("restore<__half, __half, float>",),
    "moe/permute": tuple(
        f"{name}<{types}>"
        for name in ("send", "gather", "weigh", "swiglu", "swiglu_backward")
        for types in ("__nv_bfloat16, float, 8", "float, float, 4")
    ),
    "moe/route": tuple(
        f"{name}<__nv_bfloat16, float, {slots}>"
        for name in ("route", "route_backward")
        for slots in (2, 4)
    ),
    "moe/scan": (f"scan<{scan.WARPS}, {scan.ROUNDS}>",),
}

# Dynamic shared memory of a block, in bytes, by family, file and kernel.
DYNAMIC: dict[str, int] = {
    **{f"flash_attention/mma: {name}": size for name, size in _FLASH.items()},
    **{f"matmul/any_shape: {name}": size for name, size in _MATMUL.items()},
    **{f"tensor_cores/gemm: {name}": size for name, size in _GEMM.items()},
    **{f"int4/many_hopper: {name}": size for name, size in _INT4_HOPPER.items()},
    **{
        f"tensor_cores/{file}: {rung.kernel}": rung.shared_bytes
        for file, rung in tiles.RUNGS.items()
    },
    "reduction/any_dim: sum_columns<float, Magnitudes, 4>": 4096,
    "reduction/any_dim: sum_columns<__nv_bfloat16, Magnitudes, 8>": 8192,
    "layernorm/backward: norm_backward<float, 4, 512, 1, 4, 2, 1, true, true, "
    "false, false>": 131072,
    "layernorm/backward: norm_backward<float, 4, 32, 4, 8, 2, 2, true, true, "
    "false, false>": 65536,
    "layernorm/backward: norm_backward<__nv_bfloat16, 8, 512, 1, 2, 2, 1, true, "
    "true, false, false>": 65536,
    # Of 128 experts.
    "moe/permute: count": 512,
    "moe/permute: place": 5120,
}


@dataclass(frozen=True)
class Entry:
    """One kernel of the table.

    Args:
        family: its stem.
        file: the name of its source without ``.cu``.
        kernel: its C++ name, template arguments and all.
        dynamic: bytes of shared memory that its launch adds.
    """

    family: str
    file: str
    kernel: str
    dynamic: int

    @property
    def name(self) -> str:
        """What the row is called."""
        return f"{self.family}/{self.file}: {self.kernel}"


def entries() -> list[Entry]:
    """Return every kernel of the reference solutions.

    Raises:
        LookupError: a template of which no instance is named here.
    """
    found = []
    for family in FAMILIES:
        for path in sorted((SOLUTIONS / family).glob("*.cu")):
            key = f"{family}/{path.stem}"
            named = INSTANCES.get(key, ())
            for kernel in find_kernels(source_of(family, path.stem)):
                names = [kernel.name]
                if kernel.template:
                    names = [n for n in named if n.split("<")[0] == kernel.name]
                if not names and not named:
                    raise LookupError(
                        f"solutions/{key}.cu has the template {kernel.name}: name an "
                        "instance that is launched in benchmarks/resources.py"
                    )
                for name in names:
                    dynamic = DYNAMIC.get(f"{key}: {name}", 0)
                    found.append(Entry(family, path.stem, name, dynamic))
    return found


def source_of(family: str, file: str) -> str:
    """Return the text that is compiled for a file."""
    if family == "layernorm" and file in ("forward", "backward"):
        from solutions.layernorm.launch import source

        return source(file)
    return (SOLUTIONS / family / f"{file}.cu").read_text()


def cell(entry: Entry, arch: str) -> dict[str, Any]:
    """Ask the compiler what a kernel takes on a chip; ``na`` says why it cannot."""
    try:
        cubin = compile_cubin(
            source_of(entry.family, entry.file),
            filename=f"{entry.file}.cu",
            kernels=(entry.kernel,),
            arch=arch,
        )
    except CompileError as error:
        why = _impossible(error.log)
        if why is None:
            raise
        return {"na": why}
    found = cubin.resources(entry.kernel)
    shared = found.shared_bytes + entry.dynamic
    if shared > SHARED[arch]:
        return {
            "na": f"{shared:,} bytes of shared memory; a block has {SHARED[arch]:,}"
        }
    return {
        "registers": found.registers,
        "shared_bytes": shared,
        "static_bytes": found.shared_bytes,
        "spill_bytes": found.spill_bytes,
    }


def _impossible(log: str) -> str | None:
    """Read from the compiler's messages what a chip has not, if it says that."""
    feature = re.search(r"Feature '([^']+)' requires \.target (sm_\d+)", log)
    if feature:
        return f"{feature[1]} needs {feature[2]}"
    if "__cluster_dims__ is not supported for this GPU architecture" in log:
        return "a cluster of blocks needs sm_90"
    # What a wrapper of ours says in such a case: kw/*.cuh.
    wrapper = re.search(
        r'static assertion failed with "([^"]*compute capability[^"]*)"', log
    )
    return wrapper[1] if wrapper else None


def said(found: dict[str, Any]) -> str:
    """Say a cell in a few characters."""
    if "na" in found:
        return f"n/a: {found['na']}"
    text = f"{found['registers']}, {found['shared_bytes'] / 1024:.3g} KB"
    return text + (f", {found['spill_bytes']} spilled" if found["spill_bytes"] else "")


def sources() -> dict[str, str]:
    """Return the digest of each file that the table was made from."""
    files = [p for f in FAMILIES for p in (SOLUTIONS / f).glob("*.cu*")]
    files += (ROOT / "kernelwright" / "include" / "kw").glob("*.cuh")
    return {
        str(path.relative_to(ROOT)): hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        for path in sorted(files)
    }


def toolchain() -> dict[str, str]:
    """Return the compiler's version."""
    for name in ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12"):
        try:
            return {name: version(name)}
        except PackageNotFoundError:
            continue
    return {}


def main() -> int:
    """Compile everything and store the table; return the kernels that spill."""
    rows = []
    for entry in entries():
        cells = {arch: cell(entry, arch) for arch in SHARED}
        shown = {arch: said(found) for arch, found in cells.items()}
        rows.append(
            {
                "name": entry.name,
                "label": f"`{entry.kernel}`",
                "family": entry.family,
                "file": entry.file,
                **shown,
                "cells": cells,
            }
        )
        print(entry.name, shown, flush=True)
    record = {
        "stem": "resources",
        "device": "no GPU (the compiler's own report)",
        "date": datetime.date.today().isoformat(),
        "command": "python -m benchmarks.resources",
        "versions": toolchain(),
        "sources": sources(),
        "rows": rows,
    }
    PATH.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(f"stored in {PATH}; chapters that show it: run `make notebooks`")
    spilled = [r["name"] for r in rows if any(
        found.get("spill_bytes") for found in r["cells"].values())]  # fmt: skip
    print("spilled:", *(spilled or ["none"]), sep="\n  ")
    return len(spilled)


if __name__ == "__main__":
    sys.exit(main())
