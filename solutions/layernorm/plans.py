"""Which kernel a row gets: how many threads share it, and how much each holds."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

THREADS_STREAMED = 512  # of a block of the kernels for rows of any length
_PACK_BYTES = 16
_WARP, _MOST_THREADS = 32, 1024
_STATIC_SHARED = 1024  # room for the block's sums, and for the driver


@dataclass(frozen=True)
class Plan:
    """The template arguments of a kernel that keeps whole rows in registers.

    Args:
        width: elements of a pack, what one instruction moves.
        group: threads of a row; a warp, or a whole block.
        groups: rows of a block at a time.
        packs: of a thread, at most.
        full: every thread has that many.
    """

    width: int
    group: int
    groups: int
    packs: int
    full: bool

    @property
    def block(self) -> tuple[int, int]:
        """Threads of a block: along a row, and rows."""
        return self.group, self.groups

    @property
    def threads(self) -> int:
        """Threads of a block in all."""
        return self.group * self.groups


def pack_width(columns: int, dtype: torch.dtype, aligned: bool) -> int:
    """Return how many elements an instruction may move: 16 bytes of them, or one."""
    width = _PACK_BYTES // dtype.itemsize
    return width if aligned and columns % width == 0 else 1


def forward_plan(columns: int, width: int, itemsize: int) -> Plan | None:
    """Choose for a row of the forward pass; ``None`` where it is read in pieces.

    A thread holds up to 32 floats (16 doubles): then 1,024 threads fit in an SM's
    registers, enough to keep memory busy while some of them wait for their sums.
    """
    packs = columns // width
    most = max(1, (32 if itemsize < 8 else 16) // width)
    # The best on an H200: rows of up to 4 KB ask for 32 bytes a thread at a time,
    # longer ones for 64.
    wanted = min(most, 2 if packs * width * itemsize <= 4096 else 4)
    return _plan(packs, width, _WARP, wanted, most)


def backward_plan(columns: int, width: int, itemsize: int, sums: bool) -> Plan | None:
    """Choose for a row of the backward pass, likewise.

    With sums a thread keeps two more numbers a column, over all rows, so it has fewer
    columns: 16, in blocks of 512 threads, or 32 in a warp that has a row to itself.
    """
    packs = columns // width
    of_a_warp = (32 if width > 1 else 16) // width
    if packs <= _WARP * of_a_warp and itemsize < 8:
        plan = _plan(packs, width, _WARP, of_a_warp, of_a_warp)
        # Eight warps an SM either way; the best on an H200.
        return plan and replace(plan, groups=2 if itemsize == 2 else 4)
    held = (16 if sums else 32) // (1 if itemsize < 8 else 4)
    most = max(1, held // width if width > 1 else held // 2)
    # 512 threads: with 1,024 a thread has 64 registers, too few for either.
    return _plan(packs, width, 2 * _WARP, most, most, largest=_MOST_THREADS // 2)


def _plan(
    packs: int,
    width: int,
    least: int,
    wanted: int,
    most: int,
    largest: int = _MOST_THREADS,
) -> Plan | None:
    """Give a thread the wanted packs, or as few fewer or more as fit."""
    group = least
    while group < largest and packs > group * wanted:
        group *= 2
    each = _power_of_two(max(1, -(-packs // group)))
    if each > most:
        return None
    groups = 4 if group == _WARP else 1
    return Plan(width, group, groups, each, packs == group * each)


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()


@dataclass(frozen=True)
class Residence:
    """How the blocks of the backward pass stay on the device.

    Args:
        stages: rows of a group that are on their way; 0 without asynchronous copies.
        blocks: of an SM.
        grid: blocks in all.
        shared: dynamic bytes of a block.
    """

    stages: int
    blocks: int
    grid: int
    shared: int


def residence(
    plan: Plan, rows: int, columns: int, x: torch.Tensor, sums: bool
) -> Residence:
    """Choose how many rows are fetched ahead, and how many blocks share the rows."""
    wide = max(4, x.element_size())
    sms, most_shared, asynchronous = chip(x.device)
    blocks = 8 // plan.groups if plan.group == _WARP else 1
    room = most_shared // blocks - _STATIC_SHARED
    # A group's row of x and one of dy, 16 bytes a pack.
    stage = 2 * plan.packs * plan.threads * _PACK_BYTES
    stages = min(2, room // stage) if asynchronous and plan.width > 1 else 0
    shared = stages * stage
    if sums and plan.groups > 1:
        shared = max(shared, columns * wide)
    grid = min(blocks * sms, -(-rows // plan.groups))
    return Residence(stages, blocks, grid, shared)


def chip(device: torch.device) -> tuple[int, int, bool]:
    """Return SMs, shared bytes of a block at most, and whether copies may overlap."""
    if device.type != "cuda":
        return 4, 227 * 1024, True  # the emulator: few blocks, Hopper's limit
    facts = torch.cuda.get_device_properties(device)
    return (
        facts.multi_processor_count,
        facts.shared_memory_per_block_optin,
        facts.major >= 8,
    )
