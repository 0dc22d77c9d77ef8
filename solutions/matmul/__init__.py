"""Multiply matrices in fp32 and fp64: the ladder of chapter 6.

    matmul(a, b)[..., i, j] = sum over s of a[..., i, s] * b[..., s, j]

2 m n k operations on at least (m k + k n + m n) elements: an arithmetic intensity
that grows with the matrices, so that a large product is bound by arithmetic, if it
takes from memory only what it must. Shapes and broadcasting are ``torch.matmul``'s;
transposed and strided views are read where they lie. Gradients flow.

The rungs, in the order in which the chapter climbs them (fp32, one contiguous
product, 32-bit indices):

    naive.cu              one thread an element, rows along a warp: scattered
    coalesced.cu          columns along a warp: loads and stores side by side
    tiled.cu              32 x 32 tiles in shared memory
    register_blocked.cu   4 x 4 sums a thread
    wide.cu               the same, 16 bytes an instruction, a's tile turned
    warp_tiles.cu         8 x 8 sums, lanes that ask for the same 16 bytes
    double_buffered.cu    two pairs of tiles that take turns

``any_shape.cu`` is what ``matmul`` launches: the last rung for every layout, edge,
batch and 64-bit address, in fp32 and fp64.

When not to use it: where TF32 or half precision will do, tensor cores are eight to ten
times as fast (``solutions.tensor_cores.gemm``), and for fp64 cuBLAS has them too: three
times as fast on an H200. For a vector, or fewer than about 32 rows or columns, most of
a tile is empty, and a long sum of few elements (k far above m and n) is not split among
blocks: ``torch.matmul`` has kernels for both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import torch

import kernelwright as kw
from kernelwright.operators import check_tensor, operator, recorded

__all__ = ["matmul"]

MatmulKernel = Literal[
    "auto",
    "naive",
    "coalesced",
    "tiled",
    "register_blocked",
    "wide",
    "warp_tiles",
    "double_buffered",
]

_kernel = kw.cuda.kernels(Path(__file__).parent)
_C_TYPES = {torch.float32: "float", torch.float64: "double"}
# Elements of c that a block of each rung computes, rows first, and its threads.
_RUNGS: dict[str, tuple[tuple[int, int], tuple[int, ...]]] = {
    "naive": ((32, 8), (32, 8)),
    "coalesced": ((8, 32), (32, 8)),
    "tiled": ((32, 32), (32, 32)),
    "register_blocked": ((64, 64), (16, 16)),
    "wide": ((64, 64), (16, 16)),
    "warp_tiles": ((128, 128), (256,)),
    "double_buffered": ((128, 128), (256,)),
}
_NAMES = {"double_buffered": "matmul_fast"}
_IN_FOURS = ("wide", "warp_tiles", "double_buffered")
_MOST_RUNG_ELEMENTS = 2**31 - 2**20
_MOST_SIDE = 2**31 - 2**10
_EMULATED = 2**24
"""Products that the emulator is asked for: a tenth of a second or less."""


@dataclass(frozen=True)
class Plan:
    """How ``any_shape.cu`` divides the work; see its template parameters.

    Args:
        rows, columns: of c, that a block computes.
        steps: of k, that a tile holds.
        warps: of a block, down and across.
        lane_rows: how the lanes of a warp stand: 8 x 4 or 4 x 8.
        resident: blocks that an SM shall have room for.
        stages: pairs of tiles in shared memory, brought by asynchronous copies; 0
            for two pairs that come through registers.
    """

    rows: int
    columns: int
    steps: int
    warps: tuple[int, int]
    lane_rows: int
    resident: int
    stages: int = 0

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.warps[0] * self.warps[1]

    def blocks(self, m: int, n: int) -> int:
        """Count the blocks of one product."""
        return kw.cdiv(m, self.rows) * kw.cdiv(n, self.columns)

    def shared_bytes(self, a_by_k: bool, b_by_k: bool) -> int:
        """Return the dynamic shared memory of a block: tiles that turn are padded."""
        pitches = self.rows + 4 * a_by_k + self.columns + 4 * b_by_k
        return 4 * self.stages * self.steps * pitches

    def expression(
        self, dtype: torch.dtype, a_by_k: bool, b_by_k: bool, wide: bool
    ) -> str:
        """Return the kernel's C++ name for a dtype and the operands' layouts."""
        flags = (str(flag).lower() for flag in (a_by_k, b_by_k, wide))
        sizes = [self.rows, self.columns, self.steps, *self.warps, self.lane_rows]
        name, first = "matmul", _C_TYPES[dtype]
        if self.stages:
            name, first = "matmul_pipelined", str(self.stages)
        parts = (first, *map(str, (*sizes, self.resident)), *flags)
        return f"{name}<{', '.join(parts)}>"


# The best on an H200 of the plans that benchmarks/matmul.py sweeps, large tiles first;
# then what needs no asynchronous copies.
PIPELINED = Plan(128, 256, 16, (2, 4), 4, 1, stages=3)
MEDIUM = Plan(128, 128, 16, (4, 1), 4, 2, stages=3)
FLAT = Plan(64, 128, 16, (1, 4), 8, 2, stages=4)
SQUARE = Plan(64, 64, 32, (2, 2), 8, 3, stages=3)
TINY = Plan(32, 64, 32, (1, 4), 8, 4, stages=3)
LARGE = Plan(128, 128, 8, (4, 1), 4, 2)
SMALL = Plan(64, 64, 8, (2, 1), 4, 4)
DOUBLE = Plan(64, 64, 8, (2, 2), 8, 2)
# Each one's share of cuBLAS where it fills the chip.
_COPIED = {PIPELINED: 0.95, MEDIUM: 0.92, FLAT: 0.91, SQUARE: 0.86, TINY: 0.72}
_LOADED = {LARGE: 0.86, SMALL: 0.61}
# Both operands by k: twice as many elements to turn, 4 bytes at a time.
_PIPELINED_TURNED = 0.84


@recorded
def matmul(
    a: torch.Tensor, b: torch.Tensor, *, kernel: MatmulKernel = "auto"
) -> torch.Tensor:
    """Multiply: ``out[..., i, j] = sum over s of a[..., i, s] * b[..., s, j]``.

    Sums are made in the operands' own precision: fp32 is never rounded to TF32. On
    the CPU up to 2^24 products run on the emulator; larger ones are left to
    ``torch.matmul``, which gives the same values in another order of summation.

    Args:
        a: (..., m, k) or (k,); float32 or float64.
        b: (..., k, n) or (k,); a's dtype and device. Leading dimensions broadcast.
        kernel: ``auto``, or a rung of the chapter, which takes two float32 matrices
            with fewer than 2^31 - 2^20 elements each; from ``wide`` on, n and k are
            multiples of 4.

    Returns:
        (..., m, n), without the dimension of an operand that is a vector.

    Raises:
        TypeError: not tensors, or of dtypes that are not float32 or float64.
        ValueError: shapes, dtypes or devices that do not fit; an unknown kernel.

    Cost: 2 m n k FLOPs a product; at least (m k + k n + m n) * itemsize bytes.
    """
    _check(a, b, kernel)
    result: torch.Tensor = _matmul(a, b, kernel)
    return result


@operator("matmul")
def _matmul(a: torch.Tensor, b: torch.Tensor, kernel: str) -> torch.Tensor:
    left = a[None] if a.dim() == 1 else a
    right = b[:, None] if b.dim() == 1 else b
    if right.dim() == 2 and left.dim() > 2:
        # One tall product instead of many: b is the same for all.
        flat = _product(left.flatten(0, -2), right, kernel)
    else:
        flat = _product(left, right, kernel)
    return flat.view(_shape(a, b))


@_matmul.register_fake
def _(a: torch.Tensor, b: torch.Tensor, kernel: str) -> torch.Tensor:
    return a.new_empty(_shape(a, b))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.save_for_backward(*inputs[:2])


def _gradient(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    a, b = ctx.saved_tensors
    wanted_a, wanted_b, _ = ctx.needs_input_grad
    left = a[None] if a.dim() == 1 else a
    right = b[:, None] if b.dim() == 1 else b
    grad = grad.unsqueeze(-2) if a.dim() == 1 else grad
    grad = grad.unsqueeze(-1) if b.dim() == 1 else grad
    grad_a = grad_b = None
    # Transposed views: the kernel reads them where they lie.
    if wanted_a:
        grad_a = matmul(grad, right.mT).sum_to_size(left.shape).reshape(a.shape)
    if wanted_b:
        if right.dim() == 2 and left.dim() > 2:
            left, grad = left.flatten(0, -2), grad.flatten(0, -2)
        grad_b = matmul(left.mT, grad).sum_to_size(right.shape).reshape(b.shape)
    return grad_a, grad_b, None


_matmul.register_autograd(_gradient, setup_context=_keep)


def _shape(a: torch.Tensor, b: torch.Tensor) -> tuple[int, ...]:
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    rows = a.shape[-2:-1] if a.dim() > 1 else ()
    return (*batch, *rows, *(b.shape[-1:] if b.dim() > 1 else ()))


def _product(a: torch.Tensor, b: torch.Tensor, kernel: str) -> torch.Tensor:
    """Multiply operands of two or more dimensions each."""
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    (m, k), n = a.shape[-2:], b.shape[-1]
    out = a.new_empty((*batch, m, n))
    if not out.numel():
        return out
    if not k:
        return out.zero_()
    if kernel != "auto":
        _launch_rung(kernel, a, b, out)
    elif a.device.type == "cpu" and out.numel() * k > _EMULATED:
        torch.matmul(a, b, out=out)
    else:
        _launch(a, b, out)
    return out


def plan_for(
    m: int, n: int, batch: int, like: torch.Tensor, both_by_k: bool = False
) -> Plan:
    """Choose the tiles that should be done first.

    An SM works on its tiles one after the other, or shares itself among them: either
    way the time goes with the tiles of the busiest SM, whole or partly empty ones.

    Args:
        m: rows of c.
        n: columns of c.
        batch: how many products.
        like: an operand, for its dtype and device.
        both_by_k: whether both tiles must be turned.
    """
    if like.dtype is torch.float64:
        return DOUBLE
    sms, rates = 132, dict(_COPIED)
    if like.device.type == "cuda":
        facts = torch.cuda.get_device_properties(like.device)
        sms = facts.multi_processor_count
        rates = rates if facts.major >= 8 else dict(_LOADED)
    if both_by_k and PIPELINED in rates:
        rates[PIPELINED] = _PIPELINED_TURNED

    def cost(plan: Plan) -> float:
        turns = kw.cdiv(plan.blocks(m, n) * batch, sms)
        return turns * plan.rows * plan.columns / rates[plan]

    return min(rates, key=cost)


@dataclass(frozen=True)
class Operand:
    """One operand as the kernel reads it.

    Args:
        data: its first element: a kernel takes an address, of contiguous memory.
        by_k: whether k is the direction in which its elements lie side by side.
        along: elements from one row to the next, in the other direction.
        batch: elements from one matrix to the next; 0 repeats one.
        wide: whether it can be read in packs of 16 bytes.
    """

    data: torch.Tensor
    by_k: bool
    along: int
    batch: int
    wide: bool


def operand(x: torch.Tensor, batch: Sequence[int], k_last: bool) -> Operand:
    """Describe a matrix, or a batch of them; copied where no description fits.

    Args:
        x: (..., rows, columns).
        batch: what its leading dimensions broadcast to.
        k_last: whether k is its last dimension: true of a, false of b.
    """
    spread = x.expand(*batch, *x.shape[-2:])
    step = _batch_step(spread)
    by_rows = _side_by_side(x, -1, -2)
    if step is None or not (by_rows or _side_by_side(x, -2, -1)):
        return operand(spread.contiguous(), batch, k_last)
    short, long = (-1, -2) if by_rows else (-2, -1)
    along = x.stride(long) if x.shape[long] > 1 else x.shape[short]
    pack = 16 // x.element_size()
    whole = all(size % pack == 0 for size in (x.shape[short], along, step))
    wide = whole and x.data_ptr() % 16 == 0
    first = x.as_strided((1,), (1,))
    return Operand(first, by_rows == k_last, along, step, wide)


def _side_by_side(x: torch.Tensor, short: int, long: int) -> bool:
    """Say whether elements lie side by side along one dimension, row after row."""
    near = x.stride(short) == 1 or x.shape[short] == 1
    return near and (x.stride(long) >= x.shape[short] or x.shape[long] == 1)


def _batch_step(x: torch.Tensor) -> int | None:
    """Return the elements from one matrix to the next, if that is one number."""
    dims = [d for d in range(x.dim() - 2) if x.shape[d] > 1]
    for outer, inner in pairwise(dims):
        if x.stride(outer) != x.stride(inner) * x.shape[inner]:
            return None
    return x.stride(dims[-1]) if dims else 0


def _launch(
    a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, plan: Plan | None = None
) -> None:
    """Launch ``any_shape.cu`` on operands that are not empty."""
    batch = out.shape[:-2]
    left, right = operand(a, batch, True), operand(b, batch, False)
    (m, n), k = out.shape[-2:], a.shape[-1]
    if plan is None:
        plan = plan_for(m, n, math.prod(batch), out, left.by_k and right.by_k)
    wide = left.wide and right.wide and n % (16 // out.element_size()) == 0
    name = plan.expression(out.dtype, left.by_k, right.by_k, wide)
    blocks = plan.blocks(m, n) * math.prod(batch)
    kernel = _kernel("any_shape", name, out.device.type)
    shared = plan.shared_bytes(left.by_k, right.by_k)
    kernel[blocks, plan.threads, shared](
        left.data, right.data, out, m, n, k,
        left.along, right.along, left.batch, right.batch,
    )  # fmt: skip


def _launch_rung(
    name: str, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor
) -> None:
    sizes = [t.numel() for t in (a, b, out)]
    plain = a.dim() == b.dim() == 2 and a.dtype is torch.float32
    if not plain or max(sizes) >= _MOST_RUNG_ELEMENTS:
        raise ValueError(
            f"matmul: kernel={name!r} is a rung of the chapter: two float32 matrices, "
            f"fewer than {_MOST_RUNG_ELEMENTS:,} elements each; got {tuple(a.shape)} "
            f"and {tuple(b.shape)} of {a.dtype}. Leave kernel= away."
        )
    (m, n), k = out.shape, a.shape[1]
    if name in _IN_FOURS and (n % 4 or k % 4):
        raise ValueError(
            f"matmul: kernel={name!r} moves four floats at a time, so n and k must "
            f"be multiples of 4; got n = {n}, k = {k}. Leave kernel= away."
        )
    (rows, columns), threads = _RUNGS[name]
    grid = kw.cdiv(n, columns), kw.cdiv(m, rows)
    # The first rung's threadIdx.x counts rows.
    grid = grid[::-1] if name == "naive" else grid
    kernel = _kernel(name, _NAMES.get(name, f"matmul_{name}"), out.device.type)
    kernel[grid, threads](a.contiguous(), b.contiguous(), out, m, n, k)


def _check(a: torch.Tensor, b: torch.Tensor, kernel: str) -> None:
    """Validate once, at the boundary: kernels do not."""
    for name, x in (("a", a), ("b", b)):
        check_tensor("matmul", name, x, None)
        if x.dtype in (torch.float16, torch.bfloat16):
            raise TypeError(
                f"matmul: {name} is {x.dtype}; these sums are fp32 and fp64. For half "
                "types use solutions.tensor_cores.gemm, or x.float()."
            )
        if x.dtype not in _C_TYPES:
            raise TypeError(
                f"matmul: {name} is {x.dtype}; wanted float32 or float64: x.float()."
            )
        if x.dim() < 1:
            raise ValueError(f"matmul: {name} is a number; multiply with a * b.")
        if max(x.shape[-2:]) > _MOST_SIDE:
            raise ValueError(
                f"matmul: {name} has shape {tuple(x.shape)}; a side may have up to "
                f"{_MOST_SIDE:,}: split it."
            )
    if a.dtype != b.dtype or a.device != b.device:
        raise ValueError(
            f"matmul: a is {a.dtype} on {a.device} and b {b.dtype} on {b.device}; "
            "wanted the same: b.to(a)."
        )
    inner = b.shape[-2] if b.dim() > 1 else b.shape[0]
    if a.shape[-1] != inner:
        raise ValueError(
            f"matmul: a is {tuple(a.shape)} and b {tuple(b.shape)}: a's last side, "
            f"{a.shape[-1]}, and b's last but one, {inner}, must be equal. Transpose "
            "one with .mT?"
        )
    try:
        torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except RuntimeError:
        raise ValueError(
            f"matmul: the leading sides of {tuple(a.shape)} and {tuple(b.shape)} do "
            "not broadcast: each pair must be equal, or one of them 1."
        ) from None
    if kernel != "auto" and kernel not in _RUNGS:
        raise ValueError(
            f"matmul: no kernel {kernel!r}; wanted auto, {', '.join(_RUNGS)}."
        )
