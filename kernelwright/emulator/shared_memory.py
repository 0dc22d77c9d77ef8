"""A kernel's ``__shared__`` variables: how large they are and how far apart.

A GPU takes no more than 48 KB of them.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

from kernelwright.emulator.symbols import variables_of

MAX_STATIC = 48 * 1024
# Before each variable in the traced build: an index that runs past one array, or before
# the next, meets nobody's bytes.
GAP = 16 * 1024
# Bytes after which the banks repeat.
BANKS = 32 * 4

_SYMBOL = re.compile(r"\s\.t(?:bss|data)\s+(?P<size>[0-9a-f]+)\s+(?P<name>.+)$")


def too_much(module: Path, total: int) -> tuple[str, int] | None:
    """Return which function declares more ``__shared__`` than a GPU has, and how much.

    Args:
        module: the compiled module, where a ``__shared__`` variable is a thread-local
            one, named after the function that declares it.
        total: bytes of such variables in the whole module, and of what is between.
    """
    if total <= MAX_STATIC:
        return None
    if sum(v.size for v in variables_of(module) if v.thread_local) <= MAX_STATIC:
        return None
    tool = shutil.which("objdump") or shutil.which("llvm-objdump")
    if tool is None:
        return None
    done = subprocess.run(
        [tool, "-t", "-C", str(module)], capture_output=True, text=True
    )
    bytes_of: Counter[str] = Counter()
    for line in done.stdout.splitlines():
        match = _SYMBOL.search(line)
        if match is not None:
            owner = match["name"].removeprefix(".hidden ").rsplit("::", 1)[0]
            bytes_of[owner] += int(match["size"], 16)
    for owner, size in bytes_of.most_common(1):
        if size > MAX_STATIC:
            return re.sub(r"\(.*$", "", owner).split(" ")[-1], size
    return None


def with_gaps(assembly: str) -> str:
    """Put nobody's bytes before each thread-local variable of an assembly text.

    Each then begins in bank 0, as a kernel's only array does on a GPU.
    """
    gap = f"\t.zero\t{GAP}\n\t.balign\t{BANKS}"
    lines: list[str] = []
    inside = False
    for line in assembly.splitlines():
        words = line.split(None, 2)
        directive = words[0] if words else ""
        if directive == ".section":
            inside = words[1].startswith(".tbss")
        elif directive in (".text", ".data", ".bss"):
            inside = False
        elif inside and directive.endswith(":"):
            lines.append(gap)
        lines.append(line)
    return "\n".join(lines) + "\n"
