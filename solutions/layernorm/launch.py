"""Launches of the forward and the backward pass, on checked and contiguous tensors."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch

import kernelwright as kw
from solutions.layernorm.plans import (
    THREADS_STREAMED,
    Plan,
    backward_plan,
    forward_plan,
    pack_width,
    residence,
)

CTYPES = {
    torch.float16: "__half",
    torch.bfloat16: "__nv_bfloat16",
    torch.float32: "float",
    torch.float64: "double",
}
_FOLDER = Path(__file__).parent
_PARTIALS = 256  # partial sums a column where the rows do not stay with their block


def forward_into(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    y: torch.Tensor,
    stats: torch.Tensor | None,
    eps: float,
    kind: str,
) -> None:
    """Launch the forward pass.

    Args:
        x: contiguous (rows, columns), not empty.
        weight: (columns), or None.
        bias: likewise.
        y: as x; what is written.
        stats: (3, rows) in the wide dtype, written for the backward pass; or None.
        eps: added to the variance.
        kind: the template arguments RMS and RELU.
    """
    rows, columns = x.shape
    width = pack_width(columns, x.dtype, _aligned(x, weight, bias, y))
    plan = forward_plan(columns, width, x.element_size())
    c_type = CTYPES[x.dtype]
    if plan is None:
        kernel = _kernel("forward", f"norm_streamed<{c_type}, {kind}>", x.device.type)
        launch = kernel[rows, THREADS_STREAMED]
    else:
        name = f"norm_rows<{c_type}, {_spelled(plan)}, {flag(plan.full)}, {kind}>"
        kernel = _kernel("forward", name, x.device.type)
        launch = kernel[kw.cdiv(rows, plan.groups), plan.block]
    launch(x, weight, bias, y, stats, rows, columns, eps)


def gradients_into(
    x: torch.Tensor,
    dy: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    stats: torch.Tensor,
    dx: torch.Tensor,
    dweight: torch.Tensor | None,
    dbias: torch.Tensor | None,
    kind: str,
) -> None:
    """Launch the backward pass: dx, and with dweight or dbias both stages of these.

    Args:
        x: as in ``forward_into``, and so what is named as there.
        weight: likewise.
        bias: likewise.
        stats: what the forward pass wrote.
        dy: contiguous, as x.
        dx: as x; what is written.
        dweight: as weight, written too; or None.
        dbias: likewise.
        kind: the template arguments RMS and RELU.
    """
    rows, columns = x.shape
    sums = dweight is not None or dbias is not None
    width = pack_width(columns, x.dtype, _aligned(x, dy, weight, bias, dx))
    plan = backward_plan(columns, width, x.element_size(), sums)
    together = sums and plan is not None
    if sums and not together:
        # The sums do not fit beside the row: dx first, and a kernel of their own.
        plan = backward_plan(columns, width, x.element_size(), False)
    c_type, where = CTYPES[x.dtype], x.device.type
    given = (x, dy, weight, bias, stats)
    partials: list[torch.Tensor | None] = [None, None]

    def room(count: int) -> int:
        for at, gradient in enumerate((dweight, dbias)):
            if gradient is not None:
                partials[at] = stats.new_empty((count, columns))
        return count

    count = 0
    if plan is None:
        kernel = _kernel("backward", f"norm_backward_streamed<{c_type}, {kind}>", where)
        kernel[rows, THREADS_STREAMED](*given, dx, rows, columns)
    else:
        stay = residence(plan, rows, columns, x, together)
        if together:
            count = room(stay.grid)
        name = (
            f"norm_backward<{c_type}, {_spelled(plan)}, {stay.stages}, {stay.blocks}, "
            f"{flag(plan.full)}, {flag(together)}, {kind}>"
        )
        launch = _kernel("backward", name, where)[stay.grid, plan.block, stay.shared]
        launch(*given, dx, *partials, rows, columns)
    if sums and not together:
        count = room(min(_PARTIALS, rows))
        kernel = _kernel("backward", f"norm_partials<{c_type}, {kind}>", where)
        grid = (kw.cdiv(columns, 256), count)
        kernel[grid, 256](*given, *partials, rows, columns)
    found = [
        (part, gradient)
        for part, gradient in zip(partials, (dweight, dbias), strict=True)
        if gradient is not None
    ]
    if found:
        first, second = found[0], found[-1]
        launch = _kernel("backward", f"add_partials<{c_type}>", where)[
            (kw.cdiv(columns, 32), len(found)), (32, 32)
        ]
        launch(first[0], second[0], first[1], second[1], count, columns)


def _spelled(plan: Plan) -> str:
    return f"{plan.width}, {plan.group}, {plan.groups}, {plan.packs}"


@cache
def _kernel(stem: str, expression: str, device_type: str) -> kw.cuda.Kernel:
    return _module(stem, device_type)[expression]


@cache
def _module(stem: str, device_type: str) -> kw.cuda.Module:
    backend: kw.cuda.Backend = "gpu" if device_type == "cuda" else "emulator"
    return kw.cuda.compile(source(stem), name=f"{stem}.cu", backend=backend)


def source(stem: str) -> str:
    """Return the text of ``forward`` or ``backward``, with what both share on top."""
    parts = (_FOLDER / "row.cuh", _FOLDER / f"{stem}.cu")
    return "".join(part.read_text() for part in parts)


def wide(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which statistics and sums of a dtype are kept."""
    return torch.promote_types(dtype, torch.float32)


def _aligned(*tensors: torch.Tensor | None) -> bool:
    return all(t is None or t.data_ptr() % 16 == 0 for t in tensors)


def flag(value: bool) -> str:
    """Spell a template argument."""
    return "true" if value else "false"
