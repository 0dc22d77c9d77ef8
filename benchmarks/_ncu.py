"""A benchmark's launches under Nsight Compute, and what it counted, stored.

A script runs itself a second time under ncu with ``--launch``; the names that it
prints then stand in the order of the launches that ncu lists.
"""

from __future__ import annotations

import csv
import datetime
import io
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks._store import OUT, said_of, slug, write

Values = dict[str, Any]

_STALLED = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"


def stalled(reason: str) -> str:
    """Return ncu's counter of warps that wait for something at each issue."""
    return _STALLED.format(reason)


WAITS = {
    "waits_for_memory": stalled("long_scoreboard"),
    "waits_at_barriers": stalled("barrier"),
}
BUSY = {
    "occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "issue_share": "sm__inst_executed.avg.pct_of_peak_sustained_elapsed",
}
"""How full the SMs are of warps, and their schedulers of instructions, in percent."""

LOADS = {
    "load_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "load_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
}


def count(
    stem: str,
    counters: Mapping[str, str],
    kernels: str,
    launch_all: Callable[[], Iterable[str]],
    row: Callable[[str, Values], Values],
    about: Mapping[str, Any] | None = None,
) -> int:
    """Run ``benchmarks._<stem>_counters`` under ncu and store a row for each launch.

    Args:
        stem: the chapter's; the results go to ``<stem>-counters-<device>.json``.
        counters: ncu's names, by ours.
        kernels: pattern of the kernels' names; other launches are not counted.
        launch_all: makes the launches, and returns a name for each, in order.
        row: what is stored of a launch, from its name and its counters by our names.
        about: more to store, beside the rows.

    Returns:
        The exit code.
    """
    if "--launch" in sys.argv:
        print("launched:", " ".join(launch_all()))
        return 0
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else OUT
    module = f"benchmarks._{stem}_counters"
    command = ["ncu", "--clock-control", "none", "--csv", "--page", "raw"]
    command += ["--print-units", "base", "--print-fp", "-k", f"regex:{kernels}"]
    command += ["--metrics", ",".join(counters.values())]
    command += [sys.executable, "-m", module, "--launch"]
    run = subprocess.run(command, capture_output=True, text=True)
    launched = re.search(r"launched: (.*)", run.stdout)
    if run.returncode or launched is None or '"ID"' not in run.stdout:
        print(run.stdout[-3000:], run.stderr[-3000:])
        return 1
    names, counted = launched[1].split(), table(run.stdout)
    assert len(counted) == len(names), (len(counted), names)
    rows = [
        row(name, values(one, counters))
        for name, one in zip(names, counted, strict=True)
    ]
    for one in rows:
        print(one)
    device = first(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"])
    record = {
        "stem": f"{stem}-counters",
        "device": device,
        "date": datetime.date.today().isoformat(),
        "command": f"python -m {module}",
        "versions": {"ncu": first(["ncu", "--version"], r"Version ([\d.]+)")},
        **(about or {}),
        "rows": rows,
    }
    print(said_of(write(f"{stem}-counters-{slug(device)}", record, out)))
    return 0


def table(said: str) -> list[dict[str, str]]:
    """Return the rows of the CSV in ncu's output, less the one of units."""
    lines = said[said.find('"ID"') :].splitlines()
    quoted = "\n".join(line for line in lines if line.startswith('"'))
    return list(csv.DictReader(io.StringIO(quoted)))[1:]


def values(row: Mapping[str, str], counters: Mapping[str, str]) -> Values:
    """Return a launch's counters by our names, without those that ncu has not."""
    texts = {name: row.get(one, "").replace(",", "") for name, one in counters.items()}
    return {
        name: float(text) for name, text in texts.items() if text not in ("", "n/a")
    }


def fractions(counted: Values, shares: Iterable[str]) -> Values:
    """Return the counters with those that ncu gives in percent as fractions."""
    percent = set(shares)
    return {k: v / 100 if k in percent else v for k, v in counted.items()}


def in_our_units(counted: Values, shares: Iterable[str]) -> Values:
    """Return the counters as chapters show them, and how loads lie in memory.

    Shares are fractions, ``duration_us`` is in µs and not ns, and a request of a warp
    touches so many ``sectors_per_request``.
    """
    found = fractions(counted, shares)
    if "duration_us" in found:
        found["duration_us"] /= 1e3
    if found.get("load_requests"):
        found["sectors_per_request"] = found["load_sectors"] / found["load_requests"]
    return found


def first(command: list[str], pattern: str = r"(.+)") -> str:
    """Return the first match in what a command prints, or ``unknown``."""
    said = subprocess.run(command, capture_output=True, text=True).stdout
    found = re.search(pattern, said)
    return found[1].strip() if found else "unknown"
