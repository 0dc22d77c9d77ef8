"""Which tiles a product is cut into, and how its kernel is launched."""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import torch

import kernelwright as kw

FOLDER = Path(__file__).parent
TYPES = {
    torch.float16: "__half",
    torch.bfloat16: "__nv_bfloat16",
    torch.float32: "float",
}
GROUP = 8  # elements in 16 bytes: what one copy moves
# Past this, the rungs' 32-bit indices may wrap.
_MOST_RUNG_ELEMENTS = 2**31 - 2**20


@dataclass(frozen=True)
class Plan:
    """The tiles of ``gemm_tiles``.

    Args:
        block: rows and columns of C that a block makes.
        depth: how much of k it takes at a time.
        warp: rows and columns of C that each of its warps keeps in registers.
        stages: tiles of A and B in shared memory at once.
        group: row tiles that run together, so that they find B in the L2 cache.
    """

    block: tuple[int, int]
    depth: int
    warp: tuple[int, int]
    stages: int
    group: int = 8

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * (self.block[0] // self.warp[0]) * (self.block[1] // self.warp[1])

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block."""
        return 2 * self.stages * sum(self.block) * self.depth

    def tiles(self, m: int, n: int) -> tuple[int, int]:
        """Return how many tiles cover the rows and the columns of C."""
        return kw.cdiv(m, self.block[0]), kw.cdiv(n, self.block[1])

    def expression(
        self,
        dtype: torch.dtype,
        out: torch.dtype,
        by_rows: tuple[bool, bool],
        whole: bool,
    ) -> str:
        """Name the instance of the kernel's template."""
        numbers = (*self.block, self.depth, *self.warp, self.stages)
        flags = ", ".join(str(flag).lower() for flag in (*by_rows, whole))
        inside = ", ".join(map(str, numbers))
        return f"gemm_tiles<{TYPES[dtype]}, {TYPES[out]}, {inside}, {flags}>"


# The fastest of those timed on an H200 (benchmarks/tensor_cores.py, sweeps).
LARGE = Plan((128, 256), 64, (64, 64), 3)
MEDIUM = Plan((128, 128), 64, (64, 64), 3)
SMALL = Plan((64, 64), 64, (32, 32), 3)
# For chips that give a block less: 48 KB are within the limit of all of them.
NARROW = Plan((128, 128), 32, (64, 64), 3)


def plan_for(m: int, n: int, batches: int, processors: int, shared_limit: int) -> Plan:
    """Choose the tiles: the largest of which there are enough to fill the GPU.

    Args:
        m: rows of C.
        n: columns of C.
        batches: how many products.
        processors: of the GPU; 0 stands for the emulator, where small tiles are best.
        shared_limit: the most bytes of shared memory that a block may ask for.
    """
    plans = [p for p in (LARGE, MEDIUM, NARROW) if p.shared_bytes <= shared_limit]
    for plan in plans if processors else []:
        down, across = plan.tiles(m, n)
        if batches * down * across >= processors:
            return plan
    return SMALL if shared_limit >= SMALL.shared_bytes else NARROW


class _Matrix(ctypes.Structure):
    _fields_ = (("pitch", ctypes.c_longlong), ("batch", ctypes.c_longlong))


class _Shape(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int) for name in ("m", "n", "k")),
        *((name, ctypes.c_int) for name in ("row_tiles", "column_tiles", "group")),
        *((name, _Matrix) for name in ("a", "b", "c")),
    )


@dataclass(frozen=True)
class Operand:
    """A batch of matrices as the kernel reads them.

    Args:
        tensor: the memory; its first element is the first matrix's corner.
        by_rows: whether neighbours in memory are neighbours in a row.
        pitch: elements from one row (or column) to the next.
        batch: elements from one matrix to the next.
    """

    tensor: torch.Tensor
    by_rows: bool
    pitch: int
    batch: int


def launch(
    plan: Plan, a: Operand, b: Operand, out: torch.Tensor, m: int, n: int, k: int
) -> None:
    """Launch the package's kernel; ``out`` is contiguous, (batches, m, n)."""
    down, across = plan.tiles(m, n)
    whole = m % plan.block[0] == 0 and n % plan.block[1] == 0 and k % plan.depth == 0
    expression = plan.expression(
        a.tensor.dtype, out.dtype, (a.by_rows, b.by_rows), whole
    )
    shape = _Shape(
        *(m, n, k, down, across, plan.group),
        _Matrix(a.pitch, a.batch),
        _Matrix(b.pitch, b.batch),
        _Matrix(n, m * n),
    )
    kernel = compiled("gemm", None, expression, out.device.type)
    kernel[out.shape[0] * down * across, plan.threads, plan.shared_bytes](
        a.tensor, b.tensor, out, shape
    )


# --- the rungs of the ladder ------------------------------------------------------

RungName = Literal[
    "wmma_tile", "wmma_shared", "mma_swizzled", "pipelined", "double_buffered"
]


@dataclass(frozen=True)
class Rung:
    """A kernel of the chapter: its name, and what a block of it makes.

    Args:
        kernel: its name in the file.
        block: rows and columns of C.
        depth: what k must be a multiple of.
        threads: of a block.
        shared_bytes: dynamic shared memory of a block.
        line: whether the tiles are numbered in one line.
    """

    kernel: str
    block: tuple[int, int]
    depth: int
    threads: int
    shared_bytes: int = 0
    line: bool = False

    def grid(self, m: int, n: int) -> tuple[int, ...]:
        """Return the blocks of a launch."""
        down, across = m // self.block[0], n // self.block[1]
        return (down * across,) if self.line else (across, down)


RUNGS: dict[str, Rung] = {
    "wmma_tile": Rung("wmma_tile", (16, 16), 16, 32),
    "wmma_shared": Rung("wmma_gemm", (128, 128), 64, 256),
    "mma_swizzled": Rung("mma_sync_gemm", (128, 128), 64, 128),
    "pipelined": Rung("gemm_pipelined", (128, 128), 64, 128, 98304),
    "double_buffered": Rung("gemm_half", (128, 256), 64, 256, 147456, line=True),
}


def launch_rung(name: str, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    """Launch a rung: contiguous matrices of whole tiles, sums in fp32.

    Raises:
        ValueError: no such rung, or a product that it does not take.
    """
    if name not in RUNGS:
        raise ValueError(f"gemm: no kernel {name!r}; wanted auto, {', '.join(RUNGS)}.")
    rung = RUNGS[name]
    (m, k), n = a.shape[-2:], b.shape[-1]
    fits = (
        a.dim() == b.dim() == 2
        and a.is_contiguous()
        and b.is_contiguous()
        and out.dtype == torch.float32
        and m % rung.block[0] == n % rung.block[1] == k % rung.depth == 0
        and max(a.numel(), b.numel(), m * n) < _MOST_RUNG_ELEMENTS
        and a.data_ptr() % 16 == b.data_ptr() % 16 == 0
    )
    if not fits:
        raise ValueError(
            f"gemm: kernel={name!r} is a rung of the chapter: one product of "
            f"contiguous matrices, out_dtype=torch.float32, m, n and k multiples of "
            f"{(*rung.block, rung.depth)}; got {tuple(a.shape)} and {tuple(b.shape)}. "
            "Leave kernel= away."
        )
    if m and n:
        kernel = compiled(name, a.dtype, rung.kernel, a.device.type)
        kernel[rung.grid(m, n), rung.threads, rung.shared_bytes](a, b, out, m, n, k)


def rung_source(name: str, dtype: torch.dtype, *, as_written: bool = False) -> str:
    """Return a rung's text; the files say ``half``, and bf16 is that word replaced.

    Args:
        name: of the rung.
        dtype: of the matrices.
        as_written: leave WMMA's own load from shared memory in place for bf16 too,
            which nvcc does not compile to LDSM (``kw/wmma.cuh`` says why).
    """
    text = (FOLDER / f"{name}.cu").read_text()
    if dtype != torch.bfloat16:
        return text
    text = re.sub(r"\bhalf\b", "__nv_bfloat16", text)
    if name == "wmma_shared" and not as_written:
        text = text.replace("wmma::load_matrix_sync", "kw::load_shared")
    return f"#include <cuda_bf16.h>\n{text}"


@cache
def compiled(
    stem: str, dtype: torch.dtype | None, expression: str, device_type: str
) -> kw.cuda.Kernel:
    """Compile a kernel for a kind of device, once."""
    if dtype is None:
        source = (FOLDER / f"{stem}.cu").read_text()
    else:
        source = rung_source(stem, dtype)
    backend: kw.cuda.Backend = "gpu" if device_type == "cuda" else "emulator"
    return kw.cuda.compile(source, name=f"{stem}.cu", backend=backend)[expression]
