"""Count what the fused backward became: ``python -m …backward_machine_code``.

No GPU is needed: Triton compiles for sm_90 and brings its own disassembler. Run it in a
process of its own, with ``TRITON_INTERPRET=0``: where kernels are interpreted they are
not compiled. Prints a line of JSON for every variant of the kernel.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from typing import Any

import triton
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource

from benchmarks.candidates.backward_fused import fused_kernel
from benchmarks.candidates.machine_code import disassembled, for_hopper, loops

KINDS = {"bf16": gl.bfloat16, "fp16": gl.float16}
WORDS = {
    "wgmma": "HGMMA", "wgmma_waits": "WARPGROUP.DEPBAR", "exponentials": "MUFU.EX2",
    "local": r"\b(LDL|STL)\b", "adds": "REDG", "barriers": "BAR.SYNC",
}  # fmt: skip


def variants() -> Iterator[dict[str, Any]]:
    """Name what a launch may choose: a group of 1 is known to the compiler."""
    for grouped in (False, True):
        for bounded in (False, True):
            for ordered in (False, True):
                yield {
                    "kind": "bf16", "bounded": bounded, "ordered": ordered,
                    "grouped": grouped, "bulk": False,
                }  # fmt: skip
    yield {"kind": "fp16", "bounded": True, "ordered": True, "grouped": False,
           "bulk": False}  # fmt: skip
    for ordered in (False, True):
        yield {
            "kind": "bf16", "bounded": ordered, "ordered": ordered, "grouped": False,
            "bulk": True,
        }  # fmt: skip


def compiled(
    kind: str, bounded: bool, ordered: bool, grouped: bool, bulk: bool
) -> triton.compiler.CompiledKernel:
    """Compile a variant for Hopper."""
    block = [1, 1, 64, 128]
    layout = gl.NVMMASharedLayout.get_default_for(block, KINDS[kind])
    known = {
        "D": 128, "BOUNDED": bounded, "ORDERED": ordered, "BULK": bulk,
        "REGISTERS": 240,
        **({} if grouped else {"group": 1}),
    }  # fmt: skip
    types = {}
    for name in fused_kernel.arg_names:
        if name in known:
            types[name] = "constexpr"
        elif name == "stat_desc":
            flat = gl.NVMMASharedLayout(0, 32, 2)
            types[name] = f"tensordesc<fp32[1, 128],{flat!r}>"
        elif name == "sum_desc":
            wide = gl.NVMMASharedLayout(128, 32, 2)
            types[name] = f"tensordesc<fp32[64, 64],{wide!r}>"
        elif name.endswith("_desc"):
            types[name] = f"tensordesc<{kind}{block},{layout!r}>"
        elif name.endswith("_ptr"):
            types[name] = "*fp32" if name == "sum_ptr" else "*i32"
        else:
            types[name] = "fp32" if name.startswith("scale") else "i32"
    place = fused_kernel.arg_names.index
    constants = {(place(name),): value for name, value in known.items()}
    aligned = {(place("sum_ptr"),): [["tt.divisibility", 16]]}
    return for_hopper(GluonASTSource(fused_kernel, types, constants, aligned))


def counted(kernel: triton.compiler.CompiledKernel) -> dict[str, Any]:
    """Count registers, memory, and instructions of the loops over tiles of queries."""
    code = disassembled(kernel)
    steps = [
        loop for loop in map(count_words, loops(code.sass))
        if (loop["wgmma"], loop["exponentials"]) == (32, 32) and loop["adds"] in (0, 8)
    ]  # fmt: skip
    return {
        "registers": code.registers, "stack_bytes": code.stack_bytes,
        "shared_bytes": kernel.metadata.shared, "steps": steps,
    }  # fmt: skip


def count_words(loop: list[str]) -> dict[str, int]:
    """Count the instructions that matter."""
    counts = {
        name: sum(bool(re.search(word, text)) for text in loop)
        for name, word in WORDS.items()
    }
    return {"instructions": len(loop), **counts}


def main() -> None:
    """Print every variant with its counts, or those whose numbers are given."""
    wanted = [int(number) for number in sys.argv[1:]]
    for number, variant in enumerate(variants()):
        if wanted and number not in wanted:
            continue
        print(json.dumps({**variant, **counted(compiled(**variant))}), flush=True)


if __name__ == "__main__":
    main()
