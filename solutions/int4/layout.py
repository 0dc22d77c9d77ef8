"""Eight codes a word, in the order in which a warp's lanes load them."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch

import kernelwright.cpp
from kernelwright import cdiv
from solutions.int4.quantization import Quantized, dequantize

ROWS, COLUMNS = 16, 64
"""Of a tile: what a warp multiplies by four instructions, and loads by one."""
_WORDS = ROWS * COLUMNS // 8
_A_PART = 4096  # tiles, so that a part's 2 MB stay in a core's cache


class Packed(NamedTuple):
    """A quantized matrix in a GPU's order.

    Args:
        words: (row tiles, column tiles, 32 lanes, 4), int32, eight codes each: of a
            tile's 16 x 64 codes lane 4 g + t has columns 16 t to 16 t + 15 of rows g
            and g + 8. Of word f, nibbles 0 and 4 are columns 4 f and 4 f + 1 of row g,
            1 and 5 the same of row g + 8, 2 and 6 columns 4 f + 2 and 4 f + 3 of row g,
            3 and 7 the same of row g + 8.
        scales: (groups, rows of whole tiles), fp16, bf16, fp32 or fp64.
        zeros: of the scales' shape, uint8.
        rows: of the matrix.
        columns: of the matrix.
        group_size: how many columns share a scale.
    """

    words: torch.Tensor
    scales: torch.Tensor
    zeros: torch.Tensor
    rows: int
    columns: int
    group_size: int

    @property
    def nbytes(self) -> int:
        """What it takes, scales and zeros included."""
        return self.words.nbytes + self.scales.nbytes + self.zeros.nbytes

    def to(self, device: torch.device | str) -> Packed:
        """Return it on a device."""
        return self._replace(
            words=self.words.to(device),
            scales=self.scales.to(device),
            zeros=self.zeros.to(device),
        )


def pack(quantized: Quantized) -> Packed:
    """Put codes into words, eight each, in the order of a tensor core's fragments.

    Args:
        quantized: what ``quantize`` returned, on the CPU or a GPU.

    Returns:
        The words, on the codes' device. What lies past the last row or column is
        worth 0.

    Raises:
        TypeError, ValueError: codes that are no uint8 matrix.
        ToolchainError: CPU tensors, and this machine has no C++ compiler.

    Cost: a byte a code read, half a byte written; by C++ on all cores on the CPU, by
    four passes of torch's on a GPU.
    """
    codes, scales, zeros, group_size = quantized
    _check(codes, scales, zeros, group_size)
    rows, columns = codes.shape
    down, across = cdiv(rows, ROWS), cdiv(columns, COLUMNS)
    put = _packed_here if codes.device.type == "cpu" else _packed_there
    words = put(codes.contiguous(), down, across)
    more = down * ROWS - rows
    return Packed(
        words,
        torch.nn.functional.pad(scales.mT, (0, more)).contiguous(),
        torch.nn.functional.pad(zeros.mT, (0, more)).contiguous(),
        rows,
        columns,
        group_size,
    )


def unpack(packed: Packed) -> Quantized:
    """Return the codes of a packed matrix, a byte each: what ``pack`` was given.

    Raises:
        ToolchainError: CPU tensors, and this machine has no C++ compiler.

    Cost: half a byte a code read, a byte written.
    """
    take = _unpacked_here if packed.words.device.type == "cpu" else _unpacked_there
    return Quantized(
        take(packed),
        packed.scales.mT[: packed.rows].contiguous(),
        packed.zeros.mT[: packed.rows].contiguous(),
        packed.group_size,
    )


def restored(packed: Packed, dtype: torch.dtype) -> torch.Tensor:
    """Return the matrix that a packed one stands for."""
    return dequantize(unpack(packed), dtype)


@cache
def _functions() -> dict[str, kernelwright.cpp.Function]:
    source = Path(__file__).with_name("packing.cpp")
    return kernelwright.cpp.compile(
        source.read_text(encoding="utf-8"), name=source.name
    )


def _in_parts(tiles: int, work: Callable[[int, int], None]) -> None:
    """Give ranges of tiles to all cores: C++ runs without Python's lock."""
    firsts = range(0, tiles, _A_PART)
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for _ in pool.map(lambda i: work(i, min(i + _A_PART, tiles)), firsts):
            pass  # what one raises is raised here


def _packed_here(codes: torch.Tensor, down: int, across: int) -> torch.Tensor:
    words = torch.empty(down, across, 32, 4, dtype=torch.int32)
    packed, call = words.view(-1), _functions()["pack_tiles"]

    def work(first: int, last: int) -> None:
        call(codes, packed[first * _WORDS :], *codes.shape, first, last)

    _in_parts(down * across, work)
    return words


def _unpacked_here(packed: Packed) -> torch.Tensor:
    codes = torch.empty(packed.rows, packed.columns, dtype=torch.uint8)
    words, call = packed.words.contiguous().view(-1), _functions()["unpack_tiles"]

    def work(first: int, last: int) -> None:
        call(words[first * _WORDS :], codes, *codes.shape, first, last)

    _in_parts(packed.words.shape[0] * packed.words.shape[1], work)
    return codes


_EXCHANGED = [0, 2, 1, 3]
"""Where the bytes of four columns go in their word, and where they come from."""


def _packed_there(codes: torch.Tensor, down: int, across: int) -> torch.Tensor:
    more = across * COLUMNS - codes.shape[1], down * ROWS - codes.shape[0]
    whole = torch.nn.functional.pad(codes, (0, more[0], 0, more[1]))
    rows = whole.view(down, 2, ROWS // 2, across, COLUMNS)
    both = (rows[:, 0] | rows[:, 1] << 4).transpose(1, 2)
    by_word = both.reshape(down, across, 32, 4, 4)[..., _EXCHANGED]
    return by_word.contiguous().view(torch.int32).squeeze(-1)


def _unpacked_there(packed: Packed) -> torch.Tensor:
    down, across = packed.words.shape[:2]
    by_word = packed.words.unsqueeze(-1).view(torch.uint8)[..., _EXCHANGED]
    both = by_word.reshape(down, across, ROWS // 2, COLUMNS).transpose(1, 2)
    codes = torch.stack((both & 15, both >> 4), 1)
    codes = codes.reshape(down * ROWS, across * COLUMNS)
    return codes[: packed.rows, : packed.columns].contiguous()


def _check(
    codes: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor, group_size: int
) -> None:
    if codes.dtype != torch.uint8 or codes.dim() != 2:
        raise TypeError(
            f"pack: codes are {codes.dtype} of shape {tuple(codes.shape)}; wanted "
            "uint8, (rows, columns), as quantize returns them."
        )
    if codes.numel() and not bool(codes.max() <= 15):
        raise ValueError(
            f"pack: a code is {int(codes.max())}; wanted 0 to 15, four bits."
        )
    groups = codes.shape[0], cdiv(codes.shape[1], group_size)
    for name, given in (("scales", scales), ("zeros", zeros)):
        if tuple(given.shape) != groups:
            raise ValueError(
                f"pack: {name} have shape {tuple(given.shape)}; wanted {groups}, one "
                f"for each group of {group_size} columns in each row."
            )
