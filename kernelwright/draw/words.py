"""Codes of four bits on their way from a matrix to a tensor core's registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from kernelwright.draw import palette
from kernelwright.draw.live import Explorer, Picture
from kernelwright.draw.steps import Frame, Steps
from kernelwright.errors import ArgumentError

Pack = Callable[[torch.Tensor], torch.Tensor]

ROWS, COLUMNS, LANES, WORDS, NIBBLES = 16, 64, 32, 4, 8
_ZERO, _ONES = 8, 0x6400  # of the codes; fp16's 1024
_WIDTH, _LEFT, _TOP, _WIDE, _HIGH = 492.0, 34.0, 46.0, 7.0, 8.0
_WORDS_AT, _BITS_AT, _REGISTERS_AT = 222.0, 296.0, 384.0  # where each part begins
_HALF_AT, _HALF, _STEP = 40.0, 122.0, 34.0  # of a register's two numbers
_HEX = "font: 14px ui-monospace, monospace"


def explore_words(
    pack: Pack,
    codes: torch.Tensor | None = None,
    lanes: Sequence[int] = (0, 1, 2, 3, 4, 5, 17, 31),
) -> Explorer:
    """Let the reader choose a lane and a word, and see where its eight codes come from.

    Where they come from is found out by packing the numbers of the places themselves.

    Args:
        pack: of codes (16, 64), uint8, makes words (32, 4), int32: four for each lane
            of a warp. Nibbles i and i + 4 of a word are the two numbers of register i.
        codes: the codes that are drawn; random ones by default.
        lanes: to choose from.

    Raises:
        ArgumentError: some code is in no word, or in two; or the words are no (32, 4).
    """
    places = _places(pack)
    if codes is None:
        generator = torch.Generator().manual_seed(0)
        codes = torch.randint(0, 16, (ROWS, COLUMNS), generator=generator).byte()
    words = _packed(pack, codes)

    def draw(lane: int, word: int) -> Picture:
        own = [[divmod(p, COLUMNS) for p in held] for held in places[lane]]
        drawn = _tile(own, word) + _words(words[lane], word)
        drawn += _bits(own[word], words[lane][word])
        drawn += _registers(own[word], words[lane][word])
        picture = Steps([Frame(drawn, "")], "", _WIDTH, 520, "", "", wide=False,
                        narrow=True)  # fmt: skip
        return Picture(picture, _said(own, word))

    return Explorer(
        {"lane": tuple(lanes), "word": tuple(range(WORDS))},
        draw,
        "A lane's codes of the tile come as one load of 16 bytes. A shift, an and, and "
        "an or make a pair of fp16 numbers of two codes, 1024 + code each; less 1032 "
        "they are worth what the codes are. A colour is a register.",
    )


def _places(pack: Pack) -> list[list[list[int]]]:
    """Return for each lane, word and nibble the code's place in the tile."""
    index = torch.arange(ROWS * COLUMNS)
    found = torch.zeros(LANES, WORDS, NIBBLES, dtype=torch.long)
    shifts = 4 * torch.arange(NIBBLES)
    for digit in range(3):  # places are numbers of three hexadecimal digits
        codes = (index >> 4 * digit & 15).byte().view(ROWS, COLUMNS)
        words = torch.tensor(_packed(pack, codes))
        found += (words[..., None] >> shifts & 15) << 4 * digit
    if sorted(found.flatten().tolist()) != index.tolist():
        raise ArgumentError(
            f"the words hold {len(set(found.flatten().tolist()))} of the tile's "
            f"{ROWS * COLUMNS} codes; wanted each of them once."
        )
    return [[[int(p) for p in word] for word in lane] for lane in found.tolist()]


def _packed(pack: Pack, codes: torch.Tensor) -> list[list[int]]:
    """Pack a tile; return each lane's words as numbers from 0 on."""
    words = pack(codes)
    if tuple(words.shape) != (LANES, WORDS):
        raise ArgumentError(
            f"pack returned shape {tuple(words.shape)}; wanted ({LANES}, {WORDS}): "
            "four words for each lane."
        )
    return [[int(word) & 0xFFFFFFFF for word in lane] for lane in words.tolist()]


def _used(register: int) -> dict[str, str]:
    return {"class_": "kw-used", "style": f"--c: {palette.series(register)}"}


def _tile(own: Sequence[Sequence[tuple[int, int]]], word: int) -> str:
    """Draw the tile, and in it what the lane has."""
    right, bottom = _LEFT + COLUMNS * _WIDE, _TOP + ROWS * _HIGH
    down = "".join(f"M{_LEFT + c * _WIDE:g} {_TOP:g}V{bottom:g}"
                   for c in range(COLUMNS + 1))  # fmt: skip
    across = "".join(f"M{_LEFT:g} {_TOP + r * _HIGH:g}H{right:g}"
                     for r in range(ROWS + 1))  # fmt: skip
    parts = [
        palette.text(_LEFT, 18, "codes of 16 rows and 64 columns", class_="kw-head"),
        f'<path class="kw-none" stroke-width=".6" d="{down}{across}"/>',
    ]
    for column in (0, 16, 32, 48, 63):
        x = _LEFT + (column + 0.5) * _WIDE
        parts.append(palette.text(x, _TOP - 6, str(column), class_="kw-tick"))
    for row in (0, 8, 15):
        y = _TOP + row * _HIGH + 9
        parts.append(palette.text(_LEFT - 6, y, str(row), class_="kw-row"))
    for number, held in enumerate(own):
        for nibble, (row, column) in enumerate(held):
            kind = _used(nibble % 4) if number == word else {"class_": "kw-shared"}
            x, y = _LEFT + column * _WIDE, _TOP + row * _HIGH
            parts.append(f'<rect x="{x:g}" y="{y:g}" width="{_WIDE:g}" '
                         f'height="{_HIGH:g}"{_attributes(kind)}/>')  # fmt: skip
    return "".join(parts)


def _attributes(kind: dict[str, str]) -> str:
    return "".join(f' {name.rstrip("_")}="{value}"' for name, value in kind.items())


def _words(words: Sequence[int], word: int) -> str:
    """Draw the four words of the lane's load."""
    head = "the lane's load: 16 bytes, four words"
    parts = [palette.text(_LEFT, _WORDS_AT - 10, head, class_="kw-head")]
    wide = COLUMNS * _WIDE / WORDS
    for number, value in enumerate(words):
        x = _LEFT + number * wide
        kind = {"class_": "kw-masked" if number == word else "kw-shared"}
        parts.append(palette.box(x + 1, _WORDS_AT, wide - 3, 26, **kind))
        parts.append(palette.text(x + wide / 2, _WORDS_AT + 18, f"{value:08x}",
                                  style=_HEX))  # fmt: skip
    return "".join(parts)


def _bits(held: Sequence[tuple[int, int]], word: int) -> str:
    """Draw the word's eight codes, the highest bits first as one writes them."""
    head = "its word, highest bits first: code, place"
    parts = [palette.text(_LEFT, _BITS_AT - 10, head, class_="kw-head")]
    wide = COLUMNS * _WIDE / NIBBLES
    for nibble, (row, column) in enumerate(held):
        x = _LEFT + (NIBBLES - 1 - nibble) * wide
        parts.append(palette.box(x + 1, _BITS_AT, wide - 3, 26, **_used(nibble % 4)))
        code = str(word >> 4 * nibble & 15)
        parts.append(palette.text(x + wide / 2, _BITS_AT + 18, code, style=_HEX))
        parts.append(palette.text(x + wide / 2, _BITS_AT + 42, f"{row}, {column}",
                                  class_="kw-tick"))  # fmt: skip
    return "".join(parts)


def _registers(held: Sequence[tuple[int, int]], word: int) -> str:
    """Draw what an and and an or make of the word, shifted four times."""
    head = "register i: (word >> 4 i & 000f000f) | 64006400"
    parts = [palette.text(_LEFT, _REGISTERS_AT - 10, head, class_="kw-head")]
    for register in range(4):
        y = _REGISTERS_AT + register * _STEP
        parts.append(palette.text(_LEFT - 6, y + 18, str(register), class_="kw-row"))
        worth = []
        for at, nibble in enumerate((register + 4, register)):
            code = word >> 4 * nibble & 15
            x = _HALF_AT + at * _HALF
            parts.append(palette.box(x, y, _HALF - 4, 26, **_used(register)))
            said = f"{_ONES + code:04x} = {1024 + code}"
            parts.append(palette.text(x + _HALF / 2 - 2, y + 18, said, style=_HEX))
            worth.append(f"{code - _ZERO}".replace("-", "−"))
        row, _ = held[register]
        said = f"− 1032: {worth[0]} and {worth[1]}, row {row}"
        x = _HALF_AT + 2 * _HALF + 6
        parts.append(
            palette.text(x, y + 18, said, style="text-anchor: start; font-size: 15px")
        )
    return "".join(parts)


def _said(own: Sequence[Sequence[tuple[int, int]]], word: int) -> str:
    every = [place for held in own for place in held]
    rows = " and ".join(str(row) for row in sorted({row for row, _ in every}))
    columns = [column for _, column in every]
    mine = [column for _, column in own[word]]
    return (
        f"the lane has rows {rows} of columns {min(columns)} to {max(columns)}, and in "
        f"this word columns {min(mine)} to {max(mine)}"
    )
