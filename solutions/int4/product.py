"""x weightᵀ with the weight in four bits: which kernel, and torch's operator."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import torch

import kernelwright as kw
from kernelwright.operators import operator, zeros_between_launches
from solutions.int4.layout import ROWS, Packed, restored

_kernel = kw.cuda.kernels(Path(__file__).parent)
_C_TYPES = {
    torch.float16: "__half",
    torch.bfloat16: "__nv_bfloat16",
    torch.float32: "float",
    torch.float64: "double",
}
HALVES = (torch.float16, torch.bfloat16)
MOST_TOKENS = 256
"""Of more tokens the product costs more than the weight: it is restored once."""
_EMULATED = 2**22  # products of two numbers; about a second on two cores
_WANTED_BLOCKS = 264  # two on each of an H200's SMs
_HOPPER_SMS = 132
_STAGES_BYTES = 216 * 2**10  # of the 227 KB that a block of Hopper's may have


class Few(NamedTuple):
    """A launch of ``few.cu``, for tokens that fit into one or two of mma's tiles."""

    token_tiles: int
    warps: int = 8
    depth: int = 2


class Many(NamedTuple):
    """A launch of ``many.cu``."""

    token_tiles: int
    splits: int
    warps: int = 4
    row_tiles: int = 2
    stages: int = 3

    @property
    def rows(self) -> int:
        """Rows of the weight that a block has."""
        return ROWS * self.warps * self.row_tiles


class Hopper(NamedTuple):
    """A launch of ``many_hopper.cu``.

    Args:
        token_tiles: of 64 tokens, of a block; 1 or 2.
        splits: blocks that share the columns; 1, 2, 4 or 8.
        groups: that the columns of a stage are of; a power of two.
    """

    token_tiles: int
    splits: int
    groups: int
    rows: int = 8 * ROWS

    @property
    def columns(self) -> int:
        """Columns of a stage."""
        return 256 if self.token_tiles == 1 else 128

    @property
    def stages(self) -> int:
        """Stages that shared memory holds."""
        return min(8, _STAGES_BYTES // self._stage)

    @property
    def threads(self) -> int:
        """Of a block: those that multiply, and four warps that copy."""
        return 32 * (self.columns // 16 + 4)

    @property
    def shared(self) -> int:
        """Bytes of shared memory: the stages from a multiple of 1,024 on."""
        return self.stages * self._stage + 1024

    @property
    def _stage(self) -> int:
        x, words = (
            64 * self.token_tiles * self.columns * 2,
            self.rows * self.columns // 2,
        )
        return kw.cdiv(x + words + self.groups * self.rows * 3, 1024) * 1024


Plan = Few | Many | Hopper


def plan_for(
    tokens: int, rows: int, columns: int, group_size: int, hopper: bool = False
) -> Plan:
    """Choose a kernel and its tiles.

    Args:
        tokens: rows of x, 1 to ``MOST_TOKENS``.
        rows: of the weight.
        columns: of the weight, and of x.
        group_size: a multiple of 16.
        hopper: whether it runs on compute capability 9.0.
    """
    if tokens <= 16 and group_size % 64 == 0:
        return Few(1 if tokens <= 8 else 2)
    plan = Hopper(min(2, kw.cdiv(tokens, 64)), 1, 1)
    # A stage has whole groups, or is part of one.
    if hopper and not (group_size % plan.columns and plan.columns % group_size):
        blocks = kw.cdiv(rows, plan.rows) * kw.cdiv(tokens, 64 * plan.token_tiles)
        # A part of fewer than four stages hardly fills them.
        most = max(1, min(8, _HOPPER_SMS // blocks, columns // (4 * plan.columns)))
        return plan._replace(
            splits=1 << most.bit_length() - 1, groups=kw.cdiv(plan.columns, group_size)
        )
    tiles = next(n for n in (1, 2, 4, 8) if tokens <= 8 * n or n == 8)
    one = Many(tiles, 1)
    blocks = kw.cdiv(rows, one.rows) * kw.cdiv(tokens, 8 * tiles)
    return one._replace(splits=max(1, min(_WANTED_BLOCKS // blocks, columns // 512)))


def multiplied(
    x: torch.Tensor, packed: Packed, bias: torch.Tensor | None
) -> torch.Tensor:
    """Compute ``x weightᵀ + bias`` of (tokens, columns), by the best way there is."""
    if not _fits(x, packed):
        weight = whole(packed, x.dtype)
        return torch.nn.functional.linear(x, weight, bias)
    out = x.new_empty(x.shape[0], packed.rows)
    if not out.numel():
        return out
    # Scales of a wider dtype are rounded to x's, as autocast would.
    packed = packed._replace(scales=packed.scales.to(x.dtype))
    x = x.contiguous()
    x = x if x.data_ptr() % 16 == 0 else x.clone()
    hopper = x.is_cuda and torch.cuda.get_device_capability(x.device) == (9, 0)
    plan = plan_for(x.shape[0], *packed[3:], hopper)
    if isinstance(plan, Few):
        _launch_few(plan, x, packed, bias, out)
    elif isinstance(plan, Hopper):
        _launch_hopper(plan, x, packed, bias, out)
    else:
        _launch_many(plan, x, packed, bias, out)
    return out


def _fits(x: torch.Tensor, packed: Packed) -> bool:
    """Say whether a kernel takes it as it is."""
    whole = packed.columns % 8 == 0 and packed.group_size % 16 == 0
    small = x.shape[0] * packed.rows * packed.columns <= _EMULATED
    here = x.device.type == "cuda" or small
    return (
        x.dtype in HALVES
        and packed.columns > 0
        and x.shape[0] <= MOST_TOKENS
        and whole
        and here
    )


def _launch_few(
    plan: Few,
    x: torch.Tensor,
    packed: Packed,
    bias: torch.Tensor | None,
    out: torch.Tensor,
) -> None:
    tokens, columns = x.shape
    words, scales, zeros, rows, _, group_size = packed
    # With two tiles of tokens, two steps at once would take too many registers.
    steps = 2 if group_size % 128 == 0 and plan.token_tiles == 1 else 1
    kernel = _kernel(
        "few",
        f"int4_few<{_C_TYPES[x.dtype]}, {plan.token_tiles}, {plan.warps}, {steps}, "
        f"{plan.depth}>",
        x.device.type,
    )
    grid = words.shape[0], kw.cdiv(tokens, 8 * plan.token_tiles)
    kernel[grid, 32 * plan.warps](
        words, scales, zeros, x, bias, out, tokens, rows, columns, scales.shape[1],
        group_size // (64 * steps),
    )  # fmt: skip


def _launch_many(
    plan: Many,
    x: torch.Tensor,
    packed: Packed,
    bias: torch.Tensor | None,
    out: torch.Tensor,
) -> None:
    tokens, columns = x.shape
    words, scales, zeros, rows, _, group_size = packed
    kernel = _kernel(
        "many",
        f"int4_many<{_C_TYPES[x.dtype]}, {plan.token_tiles}, {plan.warps}, "
        f"{plan.row_tiles}, {plan.stages}>",
        x.device.type,
    )
    across, down = kw.cdiv(rows, plan.rows), kw.cdiv(tokens, 8 * plan.token_tiles)
    left = plan.splits * out.numel() if plan.splits > 1 else 1
    parts = torch.empty(left, dtype=torch.float32, device=x.device)
    arrived = zeros_between_launches(x.device, across * down)
    kernel[(across, down, plan.splits), 32 * plan.warps](
        words, scales, zeros, x, bias, out, parts, arrived, tokens, rows, columns,
        scales.shape[1], group_size,
    )  # fmt: skip


def _launch_hopper(
    plan: Hopper,
    x: torch.Tensor,
    packed: Packed,
    bias: torch.Tensor | None,
    out: torch.Tensor,
) -> None:
    tokens, columns = x.shape
    words, scales, zeros, rows, _, group_size = packed
    across, down = 4 * kw.cdiv(columns, 256), kw.cdiv(tokens, 64)
    tiles = x.new_empty(down * across * 64 * 64)
    arrange = _kernel("many_hopper", "arrange", x.device.type)
    arrange[kw.cdiv(down * 64 * across * 8, 256), 256](x, tiles, tokens, columns)
    kernel = _kernel(
        "many_hopper",
        f"int4_many_hopper<{_C_TYPES[x.dtype]}, {plan.token_tiles}, {plan.splits}, "
        f"{plan.stages}, {plan.groups}>",
        x.device.type,
    )
    grid = kw.cdiv(rows, plan.rows), kw.cdiv(down, plan.token_tiles), plan.splits
    kernel[grid, plan.threads, plan.shared](
        words, scales, zeros, tiles, bias, out, tokens, rows, columns,
        scales.shape[1], group_size,
    )  # fmt: skip


def whole(packed: Packed, dtype: torch.dtype) -> torch.Tensor:
    """Return the matrix that a packed one stands for, rounded to a dtype."""
    words, scales, zeros, rows, columns, group_size = packed
    if words.device.type != "cuda":
        return restored(packed, dtype)
    out = torch.empty(rows, columns, dtype=dtype, device=words.device)
    if not out.numel():
        return out
    wide = torch.promote_types(scales.dtype, torch.float32)
    names = ", ".join(_C_TYPES[d] for d in (dtype, scales.dtype, wide))
    kernel = _kernel("restore", f"restore<{names}>", "cuda")
    grid = kw.cdiv(words.shape[1], 4), words.shape[0]
    kernel[grid, 128](
        words, scales, zeros, out, rows, columns, scales.shape[1], group_size
    )
    return out


@operator("int4_linear")
def linear_operator(
    x: torch.Tensor,
    words: torch.Tensor,
    scales: torch.Tensor,
    zeros: torch.Tensor,
    bias: torch.Tensor | None,
    rows: int,
    columns: int,
    group_size: int,
) -> torch.Tensor:
    """Multiply by a packed weight."""
    packed = Packed(words, scales, zeros, rows, columns, group_size)
    return multiplied(x, packed, bias)


@operator("int4_restore")
def restore_operator(
    words: torch.Tensor,
    scales: torch.Tensor,
    zeros: torch.Tensor,
    rows: int,
    columns: int,
    group_size: int,
    dtype: torch.dtype,
) -> torch.Tensor:
    """Return the matrix that words stand for."""
    return whole(Packed(words, scales, zeros, rows, columns, group_size), dtype)


linear_operator.register_fake(
    lambda x, words, scales, zeros, bias, rows, columns, group_size: x.new_empty(
        x.shape[0], rows
    )
)
restore_operator.register_fake(
    lambda words, scales, zeros, rows, columns, group_size, dtype: scales.new_empty(
        rows, columns, dtype=dtype
    )
)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, words, scales, zeros, _, *ctx.sizes = inputs
    ctx.dtype = x.dtype
    ctx.save_for_backward(words, scales, zeros)


def _gradient(ctx: Any, slope: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    words, scales, zeros = ctx.saved_tensors
    of_x = of_bias = None
    if ctx.needs_input_grad[0]:
        weight = restore_operator(words, scales, zeros, *ctx.sizes, ctx.dtype)
        of_x = slope @ weight
    if ctx.needs_input_grad[4]:
        of_bias = slope.sum(0)
    return of_x, None, None, None, of_bias, None, None, None


linear_operator.register_autograd(_gradient, setup_context=_keep)
