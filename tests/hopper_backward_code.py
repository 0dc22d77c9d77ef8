"""Count what the Gluon backward became: ``python -m tests.hopper_backward_code``.

Run it in a process of its own, with ``TRITON_INTERPRET=0`` (``hopper_code`` says why).
Prints a line of JSON for every variant of the kernel, or for those that are numbered.
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

from solutions.flash_attention_triton.hopper_backward import _backward_kernel
from tests.hopper_code import disassembled, for_hopper, loops

KINDS = {"bf16": gl.bfloat16, "fp16": gl.float16}
WORDS = {
    "wgmma": "HGMMA", "wgmma_waits": "WARPGROUP.DEPBAR", "exponentials": "MUFU.EX2",
    "local": r"\b(LDL|STL)\b", "adds": "REDG",
}  # fmt: skip


def variants() -> Iterator[dict[str, Any]]:
    """Name what a launch may choose: a group of 1 is known to the compiler."""
    for head_dim in (128, 64):
        for side in (16,) if head_dim == 64 else (1, 16):
            known = {"head_dim": head_dim, "side": side}
            for grouped in (False, True):
                for bounded in (False, True):
                    way = {"bounded": bounded, "grouped": grouped}
                    yield {"kind": "bf16", **way, **known}
        yield {"kind": "fp16", "bounded": True, "grouped": False, **known}


def compiled(
    kind: str, bounded: bool, grouped: bool, head_dim: int, side: int
) -> triton.compiler.CompiledKernel:
    """Compile a variant for Hopper."""
    known = {
        "BOUNDED": bounded,
        "D": head_dim,
        "SIDE": side,
        **({} if grouped else {"group": 1}),
    }
    types = {}
    for name in _backward_kernel.arg_names:
        if name in known:
            types[name] = "constexpr"
        elif name == "stat_desc":
            flat = gl.NVMMASharedLayout(0, 32, 2)
            types[name] = f"tensordesc<fp32[1, 128],{flat!r}>"
        elif name.endswith("_desc"):
            block = [1, 1, 64, head_dim // 2 if name == "half_desc" else head_dim]
            layout = gl.NVMMASharedLayout.get_default_for(block, KINDS[kind])
            types[name] = f"tensordesc<{kind}{block},{layout!r}>"
        elif name.endswith("_ptr"):
            types[name] = "*fp32" if name == "sum_ptr" else "*i32"
        else:
            types[name] = "fp32" if name.startswith("scale") else "i32"
    place = _backward_kernel.arg_names.index
    constants = {(place(name),): value for name, value in known.items()}
    aligned = {(place("sum_ptr"),): [["tt.divisibility", 16]]}
    return for_hopper(GluonASTSource(_backward_kernel, types, constants, aligned))


def counted(kernel: triton.compiler.CompiledKernel, head_dim: int) -> dict[str, Any]:
    """Count registers, memory, and instructions of the loops over tiles of queries."""
    code = disassembled(kernel)
    products = {128: 32, 64: 24}[head_dim]  # wgmma of a step, 16 of its sum each
    steps = [
        loop for loop in map(count_words, loops(code.sass))
        if (loop["wgmma"], loop["exponentials"], loop["adds"])
        == (products, 32, head_dim // 16)
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
        if not wanted or number in wanted:
            found = counted(compiled(**variant), variant["head_dim"])
            print(json.dumps({**variant, **found}), flush=True)


if __name__ == "__main__":
    main()
