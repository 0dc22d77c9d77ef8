"""Which kernel a shape gets, and how it is cut: whole rows, columns, or pieces."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from kernelwright.operators import held
from solutions.softmax import kernels, side_by_side


class Crew(NamedTuple):
    """The threads of one program.

    Args:
        warps: how many.
        registers: most that a thread takes, so that more programs fit on an SM; as
            many as the compiler likes when absent.
    """

    warps: int
    registers: int | None = None

    def options(self) -> dict[str, int]:
        """Return what Triton's launch is told."""
        most = {} if self.registers is None else {"maxnreg": self.registers}
        return {"num_warps": self.warps, **most}


REGISTERS = 64 * 1024
"""Bytes of widened numbers that a program holds: rows of 16,384 in float32."""
PIECE = 8192
FORWARD: dict[int, Crew] = {2: Crew(4, 56), 4: Crew(8), 8: Crew(16)}
BACKWARD: dict[int, Crew] = {2: Crew(8, 48), 4: Crew(8, 80), 8: Crew(16)}
"""Who has a piece that waits, by the bytes of a number: the fastest on an H200."""
MOST_TOGETHER = 64
"""Most pieces of one row that wait for each other; and no more than there are SMs."""
MOST_DOWN = 1024
"""Longest sum across memory that is taken where it lies; longer ones are copied."""
_TILE = 2048  # numbers of a program that has several short rows


def forward_into(x: torch.Tensor, out: torch.Tensor) -> None:
    """Write the softmax over the middle dimension; both (outer, length, inner).

    Args:
        x: contiguous, not empty; fp16, bf16, fp32 or fp64.
        out: contiguous, of x's shape; any of these dtypes.

    Cost: each element read once and written once; rows of more than
    ``MOST_TOGETHER * PIECE`` numbers read twice, and without a GPU those of more than
    ``REGISTERS`` bytes; across memory past ``MOST_DOWN``, two copies more.
    """
    outer, length, inner = x.shape
    wide = _wide(x)
    if inner > 1 and length > MOST_DOWN:
        turned = _turned(x)
        made = torch.empty_like(turned, dtype=out.dtype)
        forward_into(turned, made)
        out.copy_(made.view(outer, inner, length).mT)
        return
    if inner > 1:
        block, columns, tiles, warps = _columns_plan(length, inner)
        held(kernels.columns_kernel)[(outer * tiles,)](
            x, out, length, inner, tiles,
            COLS=columns, BLOCK=block, WIDE=wide, num_warps=warps,
        )  # fmt: skip
    elif length * _wide_bytes(x) <= REGISTERS:
        block, rows, warps = rows_plan(length)
        held(kernels.rows_kernel)[(triton.cdiv(outer, rows),)](
            x, out, outer, length,
            ROWS=rows, BLOCK=block, WIDE=wide, num_warps=warps,
        )  # fmt: skip
    else:
        _forward_in_pieces(x, out)


def backward_into(y: torch.Tensor, grad: torch.Tensor, out: torch.Tensor) -> None:
    """Write ``y * (grad - sum of y * grad)``; all (outer, length, inner), contiguous.

    Cost: y and grad read once and out written once; rows of more than
    ``MOST_TOGETHER * PIECE`` numbers read twice, and without a GPU those of more than
    ``REGISTERS`` bytes.
    """
    outer, length, inner = y.shape
    wide = _wide(y)
    if inner > 1 and length > MOST_DOWN:
        turned = _turned(y)
        made = torch.empty_like(turned, dtype=out.dtype)
        backward_into(turned, _turned(grad), made)
        out.copy_(made.view(outer, inner, length).mT)
        return
    if inner > 1:
        block, columns, tiles, warps = _columns_plan(length, inner)
        held(kernels.columns_backward_kernel)[(outer * tiles,)](
            y, grad, out, length, inner, tiles,
            COLS=columns, BLOCK=block, WIDE=wide, num_warps=warps,
        )  # fmt: skip
    elif length * _wide_bytes(y) <= REGISTERS:
        block, rows, warps = rows_plan(length)
        held(kernels.rows_backward_kernel)[(triton.cdiv(outer, rows),)](
            y, grad, out, outer, length,
            ROWS=rows, BLOCK=block, WIDE=wide, num_warps=warps,
        )  # fmt: skip
    else:
        _backward_in_pieces(y, grad, out)


def rows_plan(length: int) -> tuple[int, int, int]:
    """Return the numbers of a row in registers, rows of a program, and its warps."""
    block = triton.next_power_of_2(length)
    rows = max(1, _TILE // block) if block <= 1024 else 1
    return block, rows, min(32, max(4, block // 512))  # 16 numbers a thread


def _columns_plan(length: int, inner: int) -> tuple[int, int, int, int]:
    block = triton.next_power_of_2(length)
    # At least 16 side by side: of two bytes each, that is a whole sector.
    columns = min(max(16, 4096 // block), triton.next_power_of_2(inner), 128)
    return block, columns, triton.cdiv(inner, columns), 8 if block > 256 else 4


def _forward_in_pieces(x: torch.Tensor, out: torch.Tensor) -> None:
    rows, length, _ = x.shape
    pieces, wide = triton.cdiv(length, PIECE), _wide(x)
    maxima, totals = x.new_empty((2, rows, pieces), dtype=_wide_dtype(x))
    if _can_meet(x, pieces):
        held(side_by_side.forward_kernel)[(rows * pieces,)](
            x, maxima, totals, _nobody(x), out, rows, length, pieces,
            BLOCK=PIECE, ROOM=_room(pieces), WIDE=wide, PACK=_to_a_register(x),
            **FORWARD[x.element_size()].options(),
        )  # fmt: skip
        return
    tops, shares = x.new_empty((2, rows), dtype=_wide_dtype(x))
    held(kernels.pieces_kernel)[(rows * pieces,)](
        x, maxima, totals, length, pieces, BLOCK=PIECE, WIDE=wide, num_warps=8
    )
    held(kernels.fold_kernel)[(rows,)](
        maxima, totals, tops, shares, pieces,
        BLOCK=min(1024, triton.next_power_of_2(pieces)), WIDE=wide,
    )  # fmt: skip
    held(kernels.write_kernel)[(rows * pieces,)](
        x, tops, shares, out, length, pieces, BLOCK=PIECE, WIDE=wide, num_warps=8
    )


def _backward_in_pieces(y: torch.Tensor, grad: torch.Tensor, out: torch.Tensor) -> None:
    rows, length, _ = y.shape
    pieces, wide = triton.cdiv(length, PIECE), _wide(y)
    products = y.new_empty((rows, pieces), dtype=_wide_dtype(y))
    if _can_meet(y, pieces):
        held(side_by_side.backward_kernel)[(rows * pieces,)](
            y, grad, products, _nobody(y), out, rows, length, pieces,
            BLOCK=PIECE, ROOM=_room(pieces), WIDE=wide,
            PACK_Y=_to_a_register(y), PACK_GRAD=_to_a_register(grad),
            **BACKWARD[max(y.element_size(), grad.element_size())].options(),
        )  # fmt: skip
        return
    held(kernels.products_kernel)[(rows * pieces,)](
        y, grad, products, length, pieces, BLOCK=PIECE, WIDE=wide, num_warps=8
    )
    held(kernels.write_backward_kernel)[(rows * pieces,)](
        y, grad, products.sum(1), out, length, pieces,
        BLOCK=PIECE, WIDE=wide, num_warps=8,
    )  # fmt: skip


def _can_meet(x: torch.Tensor, pieces: int) -> bool:
    """Say whether a row's programs may wait for each other.

    Each SM holds at least one of them, once whatever else runs there has ended. The
    interpreter runs one program after another: the first would wait for ever.
    """
    if not x.is_cuda:
        return pieces == 1
    sms = torch.cuda.get_device_properties(x.device).multi_processor_count
    return pieces <= min(MOST_TOGETHER, sms)


def _room(pieces: int) -> int:
    """Return the places for a row's sums: one compilation for most lengths."""
    return max(MOST_TOGETHER, triton.next_power_of_2(pieces))


def _to_a_register(x: torch.Tensor) -> int:
    """Return how many numbers a register holds; 0 where there is nothing to pack."""
    return 4 // x.element_size() if x.is_cuda else 0


def _nobody(x: torch.Tensor) -> torch.Tensor:
    """Return a count a row of the pieces that are there, and one of programs begun."""
    return x.new_zeros(x.shape[0] + 1, dtype=torch.int32)


def _turned(x: torch.Tensor) -> torch.Tensor:
    """Return (outer * inner, length, 1): each sum's numbers side by side."""
    outer, length, inner = x.shape
    # With one outer, reshape alone would be a view: still across memory.
    return x.mT.contiguous().view(outer * inner, length, 1)


def _wide(x: torch.Tensor) -> tl.dtype:
    return tl.float64 if x.dtype == torch.float64 else tl.float32


def _wide_dtype(x: torch.Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _wide_bytes(x: torch.Tensor) -> int:
    return max(4, x.element_size())
