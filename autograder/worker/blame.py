"""Which block and thread wrote an element: found by running ever fewer of them.

The kernel is compiled again with a second entry behind it that calls the first only
for a range of threads. The output is poisoned, the range halved until one thread is
left: no trace is needed, and the learner's lines stay where they are.
"""

from __future__ import annotations

from typing import Any

import torch

from autograder.worker.entry import Given
from autograder.worker.wire import Header

_ENTRY = "kw_some_threads"
# Each step runs the whole launch; a larger one would take too long to halve.
MOST_THREADS = 1 << 17


def find_writer(header: Header, blobs: list[bytearray]) -> list[list[int]] | None:
    """Return block and thread (x, y, z each) of the first thread that writes.

    Returns:
        ``None`` where nobody writes the element, or where it cannot be told.
    """
    import kernelwright as kw

    launch = header["launch"]
    # Ranks wait for each other: with fewer threads none would end.
    if launch.get("ranks"):
        return None
    grid, block = _three(launch["grid"]), _three(launch["block"])
    a_block = block[0] * block[1] * block[2]
    total = grid[0] * grid[1] * grid[2] * a_block
    if total > MOST_THREADS:
        return None
    name = header["name"]
    first = kw.cuda.compile(header["source"], backend="emulator")[name]
    types = [str(p) for p in first.signature.parameters]
    module = kw.cuda.compile(
        header["source"] + _second_entry(name, types), backend="emulator"
    )
    kernel = module[_ENTRY]

    def writes(low: int, high: int) -> bool:
        given = Given.place(header, blobs)
        out = next(g.tensor for g in given.placed if g.name == header["output"])
        flat = out.reshape(-1).view(torch.uint8)
        size = out.element_size()
        place = slice(header["index"] * size, (header["index"] + 1) * size)
        before = flat[place].clone()
        kernel[grid, block, launch["shared"]](*given.values, low, high)
        return not torch.equal(before, flat[place])

    low, high = 0, total
    if not writes(low, high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if writes(low, middle):
            high = middle
        elif writes(middle, high):
            low = middle
        else:
            return None  # its threads only write together
    return [_index(low // a_block, grid), _index(low % a_block, block)]


def _second_entry(name: str, types: list[str]) -> str:
    declared = "".join(f"{t} kw_a{i}, " for i, t in enumerate(types))
    passed = ", ".join(f"kw_a{i}" for i in range(len(types)))
    return f"""
__global__ void {_ENTRY}({declared}long long kw_low, long long kw_high) {{
    long long kw_block = blockIdx.x + (long long)gridDim.x *
        (blockIdx.y + (long long)gridDim.y * blockIdx.z);
    long long kw_thread = threadIdx.x + (long long)blockDim.x *
        (threadIdx.y + (long long)blockDim.y * threadIdx.z);
    long long kw_me = kw_thread + kw_block *
        ((long long)blockDim.x * blockDim.y * blockDim.z);
    if (kw_me >= kw_low && kw_me < kw_high) {name}({passed});
}}
"""


def _three(sizes: Any) -> tuple[int, int, int]:
    padded = (*sizes, 1, 1)
    return int(padded[0]), int(padded[1]), int(padded[2])


def _index(linear: int, dims: tuple[int, int, int]) -> list[int]:
    return [linear % dims[0], linear // dims[0] % dims[1], linear // dims[0] // dims[1]]
