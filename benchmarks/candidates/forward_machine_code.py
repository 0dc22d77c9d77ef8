"""Count what the forward candidates became: ``python -m …forward_machine_code``.

No GPU is needed; ``TRITON_INTERPRET=0`` is, for what is interpreted is not compiled.
Prints a line of JSON for every candidate: registers, shared memory, spills, and of each
consumer's loop over tiles that all its queries see the instructions by kind.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from typing import Any

import triton
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource

from benchmarks.candidates.forward import CANDIDATES
from benchmarks.candidates.hopper_hd64 import REGISTERS, _forward_kernel
from benchmarks.candidates.machine_code import disassembled, for_hopper, loops
from solutions.flash_attention_triton import hopper


def compiled(knobs: dict[str, Any], causal: bool) -> triton.compiler.CompiledKernel:
    """Compile a candidate for Hopper at head_dim 64."""
    consumers = knobs["consumers"]
    constants = {
        "D": 64, "BLOCK_N": knobs["block_n"], "STAGES": knobs["stages"],
        "CONSUMERS": consumers, "BOUNDED": causal,
        "IN_TURN": knobs.get("in_turn", False), "POLY": knobs.get("poly", False),
        "REGISTERS": REGISTERS[consumers],
    }  # fmt: skip
    return _compiled(_forward_kernel, constants)


def compiled_solution(head_dim: int, in_turn: bool) -> triton.compiler.CompiledKernel:
    """Compile today's kernel, as it is launched without a mask."""
    constants = {
        "D": head_dim, "BLOCK_N": 128, "STAGES": 2, "CONSUMERS": 2, "BOUNDED": False,
        "IN_TURN": in_turn, "REGISTERS": 240,
    }  # fmt: skip
    return _compiled(hopper._forward_kernel, constants)


def _compiled(kernel: Any, constants: dict[str, Any]) -> triton.compiler.CompiledKernel:
    def described(rows: int) -> str:
        block = [1, 1, rows, constants["D"]]
        layout = gl.NVMMASharedLayout.get_default_for(block, gl.bfloat16)
        return f"tensordesc<bf16{block},{layout!r}>"

    keys = described(constants["BLOCK_N"])
    types = {
        "q_desc": described(64), "k_desc": keys, "v_desc": keys,
        "out_desc": described(64), "lse_ptr": "*fp32", "scale_log2": "fp32",
        **dict.fromkeys(constants, "constexpr"),
    }  # fmt: skip
    signature = {name: types.get(name, "i32") for name in kernel.arg_names}
    return for_hopper(GluonASTSource(kernel, signature, constants))


def counted(kernel: triton.compiler.CompiledKernel) -> dict[str, Any]:
    """Count registers, memory and instructions."""
    code = disassembled(kernel)
    changed = re.findall(r"USETMAXREG[^;]* 0x(\w+)", code.sass)
    return {
        "registers_at_start": code.registers,
        "registers": [int(number, 16) for number in changed],
        "stack_bytes": code.stack_bytes,
        "spills": len(re.findall(r"\b(?:LDL|STL)\b", code.sass)),
        "shared_bytes": kernel.metadata.shared,
        "warps": kernel.metadata.num_warps,
        "loops": [dict(kinds) for kinds in whole_tiles(code.sass)],
    }


def whole_tiles(sass: str) -> list[Counter[str]]:
    """Count the instructions of loops that multiply, and compare no positions."""
    found = []
    for loop in loops(sass):
        texts = [re.sub(r"^@!?U?P\w+ ", "", text) for text in loop]
        kinds = Counter(re.split(r"[. ]", text)[0] for text in texts)
        kinds["wgmma waits"] = sum(t.startswith("WARPGROUP.DEPBAR") for t in texts)
        kinds["all"] = len(texts)
        if kinds["HGMMA"] in (8, 12) and not kinds["FSEL"] and not kinds["EXIT"]:
            found.append(kinds)
    return found


def main() -> int:
    """Print a line for every candidate."""
    for one in CANDIDATES:
        knobs = one.run.keywords  # type: ignore[attr-defined]
        print(json.dumps({"name": one.name, **counted(compiled(knobs, True))}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
