"""What Triton's compiler makes of a Gluon kernel for Hopper; no GPU is needed.

``TRITON_INTERPRET=0`` is: where kernels are interpreted they are not compiled.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import triton
from triton.backends.compiler import GPUTarget
from triton.experimental.gluon._runtime import GluonASTSource

TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
"""The disassembler and its like, which Triton brings."""


class MachineCode(NamedTuple):
    """A compiled kernel's instructions and what a thread takes.

    Args:
        sass: the disassembly.
        registers: of a thread at launch.
        stack_bytes: of a thread in local memory.
    """

    sass: str
    registers: int
    stack_bytes: int


def for_hopper(source: GluonASTSource) -> triton.compiler.CompiledKernel:
    """Compile a kernel of four warps, before it splits into roles, for sm_90."""
    target = GPUTarget("cuda", 90, 32)
    return triton.compile(source, target=target, options={"num_warps": 4})


def disassembled(kernel: triton.compiler.CompiledKernel) -> MachineCode:
    """Return a compiled kernel's instructions and resources."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()

        def dump(what: str) -> str:
            command = [str(TOOLS / "cuobjdump"), what, file.name]
            return subprocess.run(
                command, capture_output=True, text=True, check=True
            ).stdout

        sass, usage = dump("-sass"), dump("-res-usage")
    found = re.search(r"REG:(\d+) STACK:(\d+)", usage)
    assert found is not None, usage
    return MachineCode(sass, int(found[1]), int(found[2]))


def loops(sass: str) -> Iterator[list[str]]:
    """Yield the instructions between every jump back and where it goes."""
    lines = re.findall(r"/\*([0-9a-f]{4,5})\*/\s+(.*?);", sass)
    places = {int(at, 16): n for n, (at, _) in enumerate(lines)}
    for n, (at, text) in enumerate(lines):
        jump = re.search(r"BRA.* 0x([0-9a-f]+)", text)
        if jump and int(jump[1], 16) < int(at, 16):
            yield [text for _, text in lines[places[int(jump[1], 16)] : n + 1]]
