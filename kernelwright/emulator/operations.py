"""The operations that lanes meet for, as the runtime's own table lists them.

``native/include/kwemu/operations.h`` is that table, for the runtime and for what is
said of it here: in reports, in deadlocks, in the counts of an exercise.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kernelwright.emulator.toolchain import NATIVE

_ENTRY = re.compile(r'X\((\w+),((?:[\s\\]*"[^"]*",?){4})\)')


@dataclass(frozen=True)
class Operation:
    """One line of the table.

    Args:
        number: its number in the runtime.
        waiting: what a thread is said to be in that waits there.
        counted_as: the name under which a trace counts it; empty where it does not.
        sentence: how often a block did it, in words, with ``{}`` for the number.
        instruction: the machine instruction that it becomes.
    """

    number: int
    waiting: str
    counted_as: str
    sentence: str
    instruction: str

    @property
    def whole_warp(self) -> bool:
        """Whether it has no mask: all lanes of a warp come, always."""
        return self.instruction in ("HMMA", "LDSM") or "fragment" in self.waiting


def _read() -> tuple[Operation, ...]:
    text = (NATIVE / "include" / "kwemu" / "operations.h").read_text()
    return tuple(
        Operation(number, *re.findall(r'"([^"]*)"', columns))
        for number, (_, columns) in enumerate(_ENTRY.findall(text), 1)
    )


OPERATIONS = _read()
# What a trace counts of a block, each with the operation that says how.
COUNTED = {op.counted_as: op for op in OPERATIONS if op.sentence}
# Of the launch, where all others are a block's.
BUSIEST_WARP = "requests of the busiest warp"
