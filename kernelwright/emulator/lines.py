"""From a machine address in a kernel module to the author's line."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

_PLACE = re.compile(r"^(?P<file>.*):(?P<line>\d+)(?: \(discriminator \d+\))?$")
_TOOLS = (
    ("addr2line", ("-i", "-e")),
    ("llvm-addr2line", ("-i", "-e")),
    ("llvm-symbolizer", ("--output-style=GNU", "--functions=none", "-i", "-e")),
)


def source_line(module: Path, filename: str, pc: int) -> int:
    """Return the line of ``filename`` that an address belongs to, 0 where unknown.

    Inlining is undone: of the calls that an address stands for, the innermost one in
    the author's own file counts, not the header that it was inlined from.
    """
    if pc == 0:
        return 0
    for name, options in _TOOLS:
        tool = shutil.which(name)
        if tool is None:
            continue
        try:
            done = subprocess.run(
                [tool, *options, str(module), hex(pc)],
                capture_output=True,
                text=True,
                timeout=20,
            )
        except (OSError, subprocess.SubprocessError):
            continue
        for text in done.stdout.splitlines():
            match = _PLACE.match(text.strip())
            if match is not None and Path(match["file"]).name == filename:
                return int(match["line"])
    return 0


def source_lines(module: Path, filename: str, pcs: Sequence[int]) -> dict[int, int]:
    """Return the line of each address, asked of one process for all of them."""
    if not pcs:
        return {}
    asked = [hex(pc) for pc in pcs]
    for name, options in _TOOLS:
        tool = shutil.which(name)
        if tool is None:
            continue
        show = ["--print-address"] if "symbolizer" in name else ["-a"]
        try:
            done = subprocess.run(
                [tool, *show, *options, str(module)],
                input="\n".join(asked) + "\n",
                capture_output=True,
                text=True,
                timeout=60,
            )
        except (OSError, subprocess.SubprocessError):
            continue
        found: dict[int, int] = {}
        pc = 0
        for text in done.stdout.splitlines():
            match = _PLACE.match(text.strip())
            if match is None:
                if text.strip().startswith("0x"):
                    pc = int(text.strip(), 16)
            elif pc not in found and Path(match["file"]).name == filename:
                found[pc] = int(match["line"])
        if done.returncode == 0:
            return found
    return {}
