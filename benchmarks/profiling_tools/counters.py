"""Turn ncu's CSV into a stored result: ``counters FOLDER [--out RESULTS]``.

FOLDER is what ``record.sh`` wrote: ``ncu.csv`` and ``versions.txt``.
"""

from __future__ import annotations

import argparse
import datetime
import re
from pathlib import Path

from benchmarks._ncu import BUSY, LOADS, Values, in_our_units, table, values
from benchmarks._store import OUT, said_of, slug, write

COUNTERS = {
    **LOADS,
    "duration_us": "gpu__time_duration.sum",
    "read_bytes": "dram__bytes_read.sum",
    "memory_share": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "occupancy": BUSY["occupancy"],
}


def main() -> None:
    """Read the folder and write one JSON file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    versions = (options.folder / "versions.txt").read_text()
    device, driver = (part.strip() for part in versions.splitlines()[0].split(","))
    made = (options.folder / "ncu.csv").stat().st_mtime
    ncu = re.search(r"^Version ([\d.]+)", versions, re.M)
    record = {
        "stem": "profiling-counters",
        "device": device,
        "date": datetime.date.fromtimestamp(made).isoformat(),
        "command": "benchmarks/profiling_tools/record.sh",
        "versions": {"ncu": ncu.group(1) if ncu else "", "driver": driver},
        "rows": rows((options.folder / "ncu.csv").read_text()),
    }
    path = write(f"profiling-counters-{slug(device)}", record, options.out)
    print(said_of(path))


def rows(text: str) -> list[Values]:
    """Return one row a kernel from ncu's raw CSV page."""
    return [
        row(line["Kernel Name"].split("(")[0], values(line, COUNTERS))
        for line in table(text)
    ]


def row(name: str, counted: Values) -> Values:
    """Return what is stored of a kernel."""
    found = in_our_units(counted, ("memory_share", "occupancy"))
    shown = ("duration_us", "sectors_per_request", "memory_share", "occupancy")
    return {
        "name": name,
        "label": f"`{name}`",
        "read_mb": found["read_bytes"] / 1e6,
        **{key: found[key] for key in shown},
    }


if __name__ == "__main__":
    main()
