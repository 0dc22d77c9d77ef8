"""The CPU's own facts: its name, its cores, its caches."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 1024, "M": 1024**2, "G": 1024**3}


def cpu_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return the processor's name as it calls itself."""
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", cpuinfo.read_text(), re.M)
    except OSError:
        found = None
    name = found.group(1) if found else platform.processor() or platform.machine()
    return " ".join(name.replace("(R)", "").replace("(TM)", "").split())


def cpu_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


def cache_bytes(folder: Path = _CACHES) -> int:
    """Return the size of the last-level cache; 32 MiB where the kernel tells none."""
    largest = 0
    for index in sorted(folder.glob("index*")):
        try:
            text = (index / "size").read_text().strip()
        except OSError:
            continue
        match = re.fullmatch(r"(\d+)([KMG]?)", text)
        if match:
            size = int(match.group(1)) * _UNITS.get(match.group(2), 1)
            largest = max(largest, size)
    return largest or 32 * 1024**2


def memory_available(meminfo: Path = Path("/proc/meminfo")) -> int:
    """Return the bytes of memory that can be taken without swapping."""
    try:
        found = re.search(r"^MemAvailable:\s+(\d+) kB$", meminfo.read_text(), re.M)
    except OSError:
        found = None
    return int(found.group(1)) * 1024 if found else 1024**3
