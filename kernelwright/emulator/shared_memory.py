"""How much shared memory a kernel declares: a GPU takes no more than 48 KB of it."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

MAX_STATIC = 48 * 1024

_SYMBOL = re.compile(r"\s\.t(?:bss|data)\s+(?P<size>[0-9a-f]+)\s+(?P<name>.+)$")


def too_much(module: Path, total: int) -> tuple[str, int] | None:
    """Return which function declares more ``__shared__`` than a GPU has, and how much.

    Args:
        module: the compiled module, where a ``__shared__`` variable is a thread-local
            one, named after the function that declares it.
        total: bytes of such variables in the whole module.
    """
    if total <= MAX_STATIC:
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
