"""What softmax's launch fixes by hand, as settings to be tried one after another.

``solutions.softmax.launch`` says how many numbers make a piece, how many warps have
it, how long a row may be to stay with one program, and how many programs may wait for
each other. A ``Setting`` is one choice of these; ``tried`` names all that a shape may
have and a program's registers hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
import triton

from solutions.softmax import launch

PIECES = (4096, 8192, 16_384, 32_768)
PIECE_WARPS = (4, 8, 16, 32)
ROW_WARPS = (4, 8, 16, 32)
MOST_PIECES = 128
"""Fewer than an H200's 132 SMs: programs of a row that wait must all have one."""

LAUNCH_WARPS = 8
"""Warps of the kernels of the three-launch form, which stand in the launch itself."""

A_THREAD, A_PROGRAM = 128, 48 * 1024
"""Widened numbers that registers hold: a thread has 255, an SM 65,536 in all."""

BESIDE = (None, 16, 24)
"""Most registers of a thread beside those that keep its piece; or no limit."""

LEAST, MOST = 32, 128
"""Limits outside of these: fewer do not let more programs run, more are none."""

Form = Literal["whole", "together", "launches"]
Way = Literal["forward", "backward"]
ARRAYS: dict[Way, int] = {"forward": 1, "backward": 2}
"""Arrays whose numbers a program keeps: x; y and its gradient."""

_NAMES = ("REGISTERS", "PIECE", "FORWARD", "BACKWARD", "MOST_TOGETHER", "rows_plan")
_TODAY: dict[str, Any] = {name: getattr(launch, name) for name in _NAMES}


@dataclass(frozen=True)
class Setting:
    """One choice of what is fixed by hand.

    Args:
        form: rows ``whole`` in a program; in pieces whose programs wait for each other
            (``together``); in pieces, a launch for each step (``launches``).
        warps: of a program.
        piece: numbers of a piece; 0 for whole rows.
        registers: most of a thread, where pieces wait; ``None`` for no limit.
    """

    form: Form
    warps: int
    piece: int = 0
    registers: int | None = None

    @property
    def name(self) -> str:
        """What tables and messages call it."""
        if self.form == "whole":
            return f"whole rows, {self.warps} warps"
        how = "together" if self.form == "together" else "launch by launch"
        name = f"pieces of {self.piece}, {how}, {self.warps} warps"
        return name if self.registers is None else f"{name}, {self.registers} registers"

    def values(self) -> dict[str, Any]:
        """Return the launch's names with what this choice makes of them."""
        if self.form == "whole":
            return {
                **_TODAY,
                "REGISTERS": 1 << 40,
                "rows_plan": _with_warps(self.warps),
            }
        most = MOST_PIECES if self.form == "together" else 0
        crews = dict.fromkeys((2, 4, 8), launch.Crew(self.warps, self.registers))
        return {
            **_TODAY,
            "REGISTERS": 0,
            "PIECE": self.piece,
            "FORWARD": crews,
            "BACKWARD": crews,
            "MOST_TOGETHER": most,
        }

    def fits(self, length: int, way: Way) -> bool:
        """Say whether registers hold a program's numbers and the row is worth it."""
        block = triton.next_power_of_2(length)
        if self.form == "whole":
            numbers = block * _TODAY["rows_plan"](length)[1]
        else:
            if self.piece > block:
                return False
            numbers = self.piece
            together = self.form == "together"
            if together and triton.cdiv(length, self.piece) > MOST_PIECES:
                return False
        kept = int(numbers) * ARRAYS[way]
        return kept <= A_PROGRAM and kept <= A_THREAD * 32 * self.warps


def _with_warps(warps: int) -> Callable[[int], tuple[int, int, int]]:
    def plan(length: int) -> tuple[int, int, int]:
        block, rows, _ = _TODAY["rows_plan"](length)
        return block, rows, warps

    return plan


def put(setting: Setting | None) -> None:
    """Have the launch use a setting; today's own where there is none."""
    for name, value in (setting.values() if setting else _TODAY).items():
        setattr(launch, name, value)


def of_today(length: int, way: Way, width: int) -> Setting:
    """Return the setting that today's launch chooses.

    Args:
        length: numbers of a row.
        way: forward or backward.
        width: bytes of a number.
    """
    if length * max(4, width) <= _TODAY["REGISTERS"]:
        return Setting("whole", _TODAY["rows_plan"](length)[2])
    piece = _TODAY["PIECE"]
    if triton.cdiv(length, piece) <= _TODAY["MOST_TOGETHER"]:
        crew = _TODAY[way.upper()][width]
        return Setting("together", crew.warps, piece, crew.registers)
    return Setting("launches", LAUNCH_WARPS, piece)


def tried(length: int, way: Way, width: int) -> dict[str, Setting | None]:
    """Name what is tried, today's first (``None``); arguments as of ``of_today``."""
    today = of_today(length, way, width)
    named: dict[str, Setting | None] = {f"{TODAY}: {today.name}": None}
    for one in _all(ARRAYS[way] * width):
        if one != today and one.fits(length, way):
            named[one.name] = one
    return named


TODAY = "today"


def _all(width: int) -> Iterator[Setting]:
    """Yield every setting; width is the bytes that are kept of a place in the row."""
    for warps in ROW_WARPS:
        yield Setting("whole", warps)
    for piece in PIECES:
        for warps in PIECE_WARPS:
            kept = piece * width // (4 * 32 * warps)
            for beside in BESIDE:
                most = None if beside is None else kept + beside
                if most is None or LEAST <= most <= MOST:
                    yield Setting("together", warps, piece, most)
        yield Setting("launches", LAUNCH_WARPS, piece)


def run(setting: Setting | None, way: Way, *tensors: torch.Tensor) -> None:
    """Launch once by a setting: x and out, or y, its gradient and out."""
    put(setting)
    into = launch.forward_into if way == "forward" else launch.backward_into
    into(*(t.unsqueeze(-1) for t in tensors))
