"""Count what the forward for head_dim 64 became: ``python -m tests.hopper_64_code``.

No GPU is needed; ``TRITON_INTERPRET=0`` is, for what is interpreted is not compiled.
Prints a line of JSON without a causal mask and one with: registers, shared memory,
spills, and of each consumer's loop over tiles that all its queries see the instructions
by kind.
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

from solutions.flash_attention_triton.hopper_64 import KEYS, _forward_kernel
from tests.hopper_code import disassembled, for_hopper, loops


def compiled(bounded: bool) -> triton.compiler.CompiledKernel:
    """Compile it for Hopper in bf16."""

    def described(rows: int) -> str:
        block = [1, 1, rows, 64]
        layout = gl.NVMMASharedLayout.get_default_for(block, gl.bfloat16)
        return f"tensordesc<bf16{block},{layout!r}>"

    keys = described(KEYS.value)
    types = {
        "q_desc": described(64), "k_desc": keys, "v_desc": keys,
        "out_desc": described(64), "lse_ptr": "*fp32", "scale_log2": "fp32",
        "BOUNDED": "constexpr",
    }  # fmt: skip
    signature = {name: types.get(name, "i32") for name in _forward_kernel.arg_names}
    return for_hopper(GluonASTSource(_forward_kernel, signature, {"BOUNDED": bounded}))


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
        if kinds["HGMMA"] and not kinds["FSEL"] and not kinds["EXIT"]:
            found.append(kinds)
    return found


def main() -> int:
    """Print a line without a mask, and one with."""
    for bounded in (False, True):
        print(json.dumps(counted(compiled(bounded))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
