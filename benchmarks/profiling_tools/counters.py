"""Turn ncu's CSV into a stored result: ``counters FOLDER [--out RESULTS]``.

FOLDER is what ``record.sh`` wrote: ``ncu.csv`` and ``versions.txt``.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import io
import json
import re
from pathlib import Path
from typing import Any

from benchmarks._store import RESULTS, slug

_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
_REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"


def main() -> None:
    """Read the folder and write one JSON file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS)
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
    path = options.out / f"profiling-counters-{slug(device)}.json"
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(f"stored {path}")


def rows(text: str) -> list[dict[str, Any]]:
    """Return one row a kernel from ncu's raw CSV page."""
    _, *lines = csv.DictReader(io.StringIO(text[text.index('"ID"') :]))
    found = []
    for line in lines:

        def number(key: str, line: dict[str, str] = line) -> float:
            return float(line[key].replace(",", ""))

        found.append(
            {
                "name": line["Kernel Name"].split("(")[0],
                "label": f"`{line['Kernel Name'].split('(')[0]}`",
                "duration_us": number("gpu__time_duration.sum") / 1e3,
                "read_mb": number("dram__bytes_read.sum") / 1e6,
                "sectors_per_request": number(_SECTORS) / number(_REQUESTS),
                "memory_share": number(
                    "dram__throughput.avg.pct_of_peak_sustained_elapsed"
                )
                / 100,
                "occupancy": number("sm__warps_active.avg.pct_of_peak_sustained_active")
                / 100,
            }
        )
    return found


if __name__ == "__main__":
    main()
