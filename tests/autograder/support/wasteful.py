"""Right answers that do the work several times, made of the exercises' own answers.

What a block or a program does becomes a function of its number; a kernel calls that
for more numbers than its own. What threads do that need no other is made so too.
"""

from __future__ import annotations

import re
import textwrap

from autograder.exercise import Exercise
from autograder.regions import cell_source

_KERNEL = re.compile(
    r"__global__\s+void(?:\s+__launch_bounds__\([^)]*\))?\s+(\w+)\(([^)]*)\)\s*\{"
)
# What else decorates the kernel, as a tuner does, is no part of what it calls.
_PROGRAM = re.compile(r"(?:@\w+\n)?@triton\.jit\ndef \w+_kernel\((.*?)\):\n", re.S)
# What several numbers of a launch come to, from the own one and how many there are.
_ROUNDS = {"all": "{count}", "pairs": "min({count}, 2u)"}


def by_blocks(exercise: Exercise, rounds: str) -> str:
    """Return the answer with each block doing ``all`` blocks' work, or two's."""
    code, name, parameters, body = _parts(exercise)
    # A helper that asks for its block is told.
    for helper in ("fetch", "corner"):
        if re.search(rf"\b{helper}\(", code):
            code = re.sub(rf"\b{helper}\((?=half|int)", f"{helper}(uint3 which, ", code)
            body = re.sub(rf"\b{helper}\(", f"{helper}(which, ", body)
    code, body = (part.replace("blockIdx", "which") for part in (code, body))
    count = "gridDim.x * gridDim.y"
    return _launched(
        code,
        name,
        parameters,
        body,
        "uint3 which",
        f"""unsigned own = blockIdx.x + gridDim.x * blockIdx.y;
    for (unsigned turn = 0; turn < {_ROUNDS[rounds].format(count=count)}; ++turn) {{
        unsigned at = (own + turn) % ({count});
        work(make_uint3(at % gridDim.x, at / gridDim.x, 0), ARGUMENTS);
        __syncthreads();
    }}""",
    )


def by_threads(exercise: Exercise, rounds: str) -> str:
    """Return the answer with each thread doing ``all`` threads' work, or two's."""
    code, name, parameters, body = _parts(exercise)
    block, threads = "gridDim.x * gridDim.y", "blockDim.x * blockDim.y"
    count = f"{block} * {threads}"
    body = body.replace("blockIdx", "which").replace("threadIdx", "who")
    return _launched(
        code,
        name,
        parameters,
        body,
        "uint3 which, uint3 who",
        f"""unsigned threads = {threads};
    unsigned own = (blockIdx.x + gridDim.x * blockIdx.y) * threads +
                   threadIdx.x + blockDim.x * threadIdx.y;
    for (unsigned turn = 0; turn < {_ROUNDS[rounds].format(count=count)}; ++turn) {{
        unsigned at = {"turn" if rounds == "all" else f"(own + turn) % ({count})"};
        unsigned block = at / threads, thread = at % threads;
        work(make_uint3(block % gridDim.x, block / gridDim.x, 0),
             make_uint3(thread % blockDim.x, thread / blockDim.x, 0), ARGUMENTS);
    }}""",
    )


def by_programs(exercise: Exercise, rounds: str, axis: int = 0) -> str:
    """Return the answer with each program doing ``all`` programs' work, or two's."""
    cell = cell_source(exercise, solved=True)
    kernel = list(_PROGRAM.finditer(cell))[-1]
    parameters = kernel[1]
    end = cell.index("\n\n\n", kernel.end())
    own, count = f"tl.program_id({axis})", f"tl.num_programs({axis})"
    body = cell[kernel.end() : end].replace(own, "which")
    names = [part.split(":")[0].strip() for part in parameters.split(",")]
    many = {"all": count, "pairs": f"tl.minimum({count}, 2)"}[rounds]
    kernel_body = textwrap.indent(
        f"for turn in range(0, {many}):\n"
        f"    work(({own} + turn) % {count}, {', '.join(names)})",
        "    ",
    )
    return (
        f"{cell[: kernel.start()]}@triton.jit\ndef work(which, {parameters}):\n{body}"
        f"\n\n\n{kernel[0]}{kernel_body}{cell[end:]}"
    )


def _parts(exercise: Exercise) -> tuple[str, str, str, str]:
    """Return what is before the kernel, its name, its parameters and its body."""
    cell = cell_source(exercise, solved=True)
    kernel = _KERNEL.search(cell)
    assert kernel is not None
    return cell[: kernel.start()], kernel[1], kernel[2], cell[kernel.end() :]


def _launched(
    code: str, name: str, parameters: str, body: str, numbers: str, launch: str
) -> str:
    """Put a kernel's body into a function, and a launch of it into the kernel."""
    names = [part.split()[-1].lstrip("*") for part in parameters.split(",")]
    launch = launch.replace("ARGUMENTS", ", ".join(names))
    return (
        f"{code}__device__ void work({numbers}, {parameters}) {{{body}\n"
        f"__global__ void {name}({parameters}) {{\n    {launch}\n}}\n"
    )
