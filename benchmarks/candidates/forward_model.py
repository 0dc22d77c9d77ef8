"""Predict a forward kernel's speed from its machine code: ``python -m …forward_model``.

One of the four sub-partitions of an SM is played cycle by cycle. It holds a warp of
every consumer, and each walks through the loop that the compiler made of a tile, with
the pauses and the waits that the compiler wrote beside every instruction. A cycle
issues one instruction; these take longer:

    MUFU             8 cycles each, one after another    16 a cycle and SM, guide
    FMNMX, F2FP, …   2 cycles each                       64 a cycle and SM, guide
    HGMMA 64xNx16    N / 2 cycles, one after another     2048 multiply-adds a cycle

What no guide says is fitted to two figures of an H200 (counters: hopper.py with turns,
at head_dim 64 and 128): how long a result of MUFU takes, how far ahead of the tensor
cores a warp may run, what a product costs more whose left side is registers, and two
more. ``FITS`` are values that meet both within a tenth. Without turns some of them are
off by a quarter: there it matters which warp happens to be first. Two figures for five
numbers, and neither memory nor the fetching of instructions is played: a hint.

Needs no GPU, but ``TRITON_INTERPRET=0``. Prints cycles per 64 queries by 128 keys.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.candidates.forward import CANDIDATES
from benchmarks.candidates.forward_machine_code import compiled, compiled_solution
from benchmarks.candidates.machine_code import TOOLS

MEASURED = {(64, False): 1051, (64, True): 1043, (128, False): 1298, (128, True): 1314}
"""Cycles a tile, by head_dim and turns: the products' 512 or 1024 over tensor_share."""

MULTIPLY = ("FFMA", "FADD", "FMUL")  # in either of two pipes; IMAD in one of them
COMPARE = (
    "FMNMX", "F2FP", "FSEL", "FSETP", "ISETP", "IADD3", "LEA", "LOP3", "MOV", "PLOP3",
    "PRMT", "SEL", "SHF", "VIADD",
)  # fmt: skip
LATER = {"SHFL": 24, "LDC": 30, "S2R": 30, "R2UR": 12, "SYNCS": 22}
"""Cycles until a result is there; guesses, and few of them are waited for."""
PASSED = 60  # cycles until the next consumer knows that it is its turn; a guess


@dataclass(frozen=True)
class Chip:
    """What was fitted.

    Args:
        exponential: cycles until the result of a MUFU can be used.
        ahead: cycles of products that may be queued when a warp issues another; None
            where it never waits.
        left: cycles that a product takes longer whose left side is in registers.
        barrier: cycles of a barrier of 4 warps.
        product: cycles from the end of a product to its result.
    """

    exponential: int
    ahead: int | None
    left: int
    barrier: int
    product: int


@dataclass(frozen=True)
class Instruction:
    """One instruction, and what the compiler wrote beside it.

    Args:
        name: such as ``FFMA``.
        text: all of it.
        pause: cycles until this warp's next.
        sets: the scoreboards that are held until the result is there, or its operands
            are read.
        waits: the scoreboards that must be free.
    """

    name: str
    text: str
    pause: int
    sets: tuple[int, ...]
    waits: tuple[int, ...]


def decode(cubin: bytes) -> list[tuple[int, Instruction]]:
    """Return instructions with their addresses."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(TOOLS / "cuobjdump"), "-sass", file.name]
        shown = subprocess.run(command, capture_output=True, text=True, check=True)
    return read(shown.stdout)


def read(shown: str) -> list[tuple[int, Instruction]]:
    """Read the disassembler's lines, two for an instruction."""
    line = r"/\*([0-9a-f]{4,})\*/\s+(.*?);\s+/\* 0x\w+ \*/\s+/\* (0x\w+) \*/"
    return [
        (int(at, 16), _instruction(text, int(word, 16)))
        for at, text, word in re.findall(line, shown)
    ]


def _instruction(text: str, word: int) -> Instruction:
    """Read the upper half of an instruction: bits 41 to 57 are the compiler's notes."""
    plain = re.sub(r"^@!?U?P\w+ ", "", text)
    sets = tuple(n for n in ((word >> 46) & 7, (word >> 49) & 7) if n != 7)
    waits = tuple(n for n in range(6) if word >> (52 + n) & 1)
    name = re.split(r"[. ]", plain)[0]
    return Instruction(name, plain, (word >> 41) & 15, sets, waits)


def loop_of(code: Sequence[tuple[int, Instruction]]) -> list[Instruction]:
    """Return the shortest loop that multiplies, takes exponentials and does not end."""
    found = []
    for at, last in code:
        back = re.match(r"BRA\S* .*0x([0-9a-f]+)", last.text)
        if back and int(back[1], 16) < at:
            body = [one for a, one in code if int(back[1], 16) <= a <= at]
            names = {one.name for one in body}
            if {"HGMMA", "MUFU"} <= names and "EXIT" not in names:
                found.append(body)
    shortest = min(found, key=len)
    # Jumps to where an mbarrier is asked again are not taken: what is due is there.
    return [one for one in shortest[:-1] if one.name != "BRA"] + shortest[-1:]


class Partition:
    """A sub-partition with a warp of every consumer, all in the same loop."""

    def __init__(
        self, loop: Sequence[Instruction], warps: int, chip: Chip, in_turn: bool
    ) -> None:
        self.loop, self.chip, self.warps, self.in_turn = loop, chip, warps, in_turn
        self.at, self.ready = [0] * warps, [0] * warps
        self.boards = [[0] * 6 for _ in range(warps)]
        self.results: list[list[int]] = [[] for _ in range(warps)]
        self.products = [0] * warps  # of this step, that are issued
        self.per_step = sum(one.name == "HGMMA" for one in loop)
        self.ends: list[list[int]] = [[] for _ in range(warps)]
        self.free = {"multiply": 0, "add": 0, "compare": 0, "MUFU": 0, "HGMMA": 0}
        self.turn, self.turn_at = 0, 0

    def may(self, warp: int, now: int) -> bool:
        """Say whether a warp can issue its next instruction."""
        one = self.loop[self.at[warp]]
        boards = self.boards[warp]
        if self.ready[warp] > now or any(boards[n] > now for n in one.waits):
            return False
        if one.name == "HGMMA":
            ahead = self.chip.ahead
            free = ahead is None or self.free["HGMMA"] - now <= ahead
            return free and self._has_turn(warp, now)
        if one.text.startswith("WARPGROUP.DEPBAR"):
            left = int(re.findall(r"0x(\w+)", one.text)[0], 16)
            results = self.results[warp]
            return len(results) <= left or results[-1 - left] <= now
        if one.name == "MUFU":
            return self.free["MUFU"] - now <= 32  # a few wait in front of the unit
        pipe = self._pipe(one.name)
        return pipe is None or self.free[pipe] <= now

    def _has_turn(self, warp: int, now: int) -> bool:
        """Say whether a step's first product may go; the others go behind it."""
        if not self.in_turn or self.products[warp]:
            return True
        return self.turn == warp and self.turn_at <= now

    def _pipe(self, name: str) -> str | None:
        if name == "IMAD":
            return "multiply"
        if name in MULTIPLY:
            return min(("multiply", "add"), key=lambda pipe: self.free[pipe])
        return "compare" if name in COMPARE else None

    def issue(self, warp: int, now: int) -> None:
        """Issue it, and note when its result is there."""
        one, chip = self.loop[self.at[warp]], self.chip
        pipe, later = self._pipe(one.name), LATER.get(one.name, 12)
        if pipe:
            self.free[pipe] = now + 2
        if one.name == "MUFU":
            begin = max(now, self.free["MUFU"])
            self.free["MUFU"] = begin + 8
            later = begin + chip.exponential - now
        elif one.name == "HGMMA":
            later = self._multiply(warp, one, now) - now
        for board in one.sets:
            self.boards[warp][board] = max(self.boards[warp][board], now + later)
        pause = chip.barrier if one.name == "BAR" else max(1, one.pause)
        self.ready[warp] = now + pause
        self.at[warp] += 1
        if self.at[warp] == len(self.loop):
            self.at[warp] = 0
            self.ends[warp].append(now)

    def _multiply(self, warp: int, one: Instruction, now: int) -> int:
        width = int(re.findall(r"64x(\d+)x", one.text)[0])
        registers = re.search(r" R\d+, R\d+(?:\.reuse)?, gdesc", one.text) is not None
        end = max(now, self.free["HGMMA"]) + width // 2 + self.chip.left * registers
        self.free["HGMMA"] = end
        self.products[warp] = (self.products[warp] + 1) % self.per_step
        if not self.products[warp]:
            self.turn, self.turn_at = (warp + 1) % self.warps, now + PASSED
        if "gsb0" in one.text:
            self.results[warp].append(end + self.chip.product)
        return end


def cycles(
    loop: Sequence[Instruction], warps: int, chip: Chip, in_turn: bool = False
) -> float:
    """Return how many cycles one step of one consumer takes, where all are at work."""
    partition = Partition(loop, warps, chip, in_turn)
    now = last = 0
    while min(map(len, partition.ends)) < 20:
        # The warp that went on last goes on if it can, unless one is two steps behind:
        # the ring of tiles lets none run far ahead.
        slowest = min(range(warps), key=lambda n: len(partition.ends[n]))
        if len(partition.ends[last]) > len(partition.ends[slowest]) + 1:
            last = slowest
        for warp in (last, *(n for n in range(warps) if n != last)):
            if partition.may(warp, now):
                partition.issue(warp, now)
                last = warp
                break
        now += 1
    spans = [(ends[19] - ends[7]) / 12 for ends in partition.ends]
    return sum(spans) / warps / warps


FITS = (
    Chip(40, 64, 32, 22, 30), Chip(30, 64, 32, 40, 30), Chip(40, 64, 0, 40, 30),
    Chip(40, 64, 0, 22, 30), Chip(40, 128, 0, 22, 30),
)  # fmt: skip


def main() -> int:
    """Print figures of today's kernel, measured and played, then the candidates'."""
    for (head_dim, in_turn), measured in MEASURED.items():
        loop = loop_of(decode(compiled_solution(head_dim, in_turn).asm["cubin"]))
        played = [round(cycles(loop, 2, chip, in_turn)) for chip in FITS]
        turns = "in turn" if in_turn else "together"
        print(f"today, head_dim {head_dim}, {turns}: measured {measured}, {played}")
    for one in CANDIDATES:
        knobs = one.run.keywords  # type: ignore[attr-defined]
        loop = loop_of(decode(compiled(knobs, False).asm["cubin"]))
        turns = knobs.get("in_turn", False)
        whole = 128 / knobs["block_n"]
        played = [
            round(whole * cycles(loop, knobs["consumers"], chip, turns))
            for chip in FITS
        ]
        print(f"{one.name}: {played}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
