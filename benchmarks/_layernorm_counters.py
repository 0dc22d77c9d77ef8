"""Chapter 5's rungs under Nsight Compute: ``python -m benchmarks._layernorm_counters``.

Each rung runs once under ncu, and what it counted that explains the rung's speed goes
to ``results/``. Needs a GPU and ncu.
"""

from __future__ import annotations

import sys

from benchmarks._ncu import BUSY, LOADS, WAITS, Values, count, in_our_units

ROWS = 65536
COUNTERS = {
    "duration_us": "gpu__time_duration.sum",
    "dram_read_bytes": "dram__bytes_read.sum",
    "dram_written_bytes": "dram__bytes_write.sum",
    "dram_share": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "l2_read_sectors": "lts__t_sectors_srcunit_tex_op_read.sum",
    **LOADS,
    "instructions": "smsp__inst_executed.sum",
    "shared_instructions": "smsp__inst_executed_op_shared.sum",
    **BUSY,
    **WAITS,
}
LABELS = {
    "two_pass": "`two_pass`, rows of 1,024",
    "welford": "`welford`, rows of 1,024",
    "warp_row": "`layer_norm`, rows of 1,024",
    "vectorized": "`layer_norm_relu`, rows of 1,024",
    "rms": "`rms_norm`, rows of 1,024",
    "partials": "`layer_norm_backward`, rows of 1,024",
    "two_pass_8192": "`two_pass`, rows of 8,192",
    "welford_8192": "`welford`, rows of 8,192",
    "vectorized_8192": "`layer_norm_relu`, rows of 8,192",
}
_SHARES = ("dram_share", "occupancy", "issue_share")


def launch_all() -> list[str]:
    """Launch each rung once; return their names in order."""
    import torch

    from benchmarks import layernorm as bench

    names = []
    for rows, columns in ((ROWS, bench.RUNG_COLUMNS), bench.SHAPES[0]):
        tail = "" if columns == bench.RUNG_COLUMNS else f"_{columns}"
        for name, (launch, arguments) in bench.rung_launches(rows, columns).items():
            launch(*arguments)
            names.append(name + tail)
    torch.cuda.synchronize()
    return names


def main() -> int:
    """Run this file under ncu and store what it counted."""
    kernels = "^(two_pass|welford|layer_norm|layer_norm_relu|rms_norm|"
    kernels += "layer_norm_backward)$"
    return count("layernorm", COUNTERS, kernels, launch_all, figures)


def figures(name: str, counted: Values) -> Values:
    """Return a launch's row: counters, per element of x where it says so."""
    elements = 16384 * 8192 if name.endswith("_8192") else ROWS * 1024
    found = {"name": name, "label": LABELS[name], "n": elements}
    return found | an_element(in_our_units(counted, _SHARES), elements)


def an_element(found: Values, elements: int) -> Values:
    """Return counters, and beside them what is loaded and done for each element."""
    found = dict(found)
    for key, what in (("load_sectors", "loaded"), ("l2_read_sectors", "from_l2")):
        if key in found:
            found[f"{what}_bytes_an_element"] = 32 * found[key] / elements
    if "dram_read_bytes" in found:
        found["from_dram_bytes_an_element"] = found["dram_read_bytes"] / elements
    if "instructions" in found:
        found["instructions_an_element"] = 32 * found["instructions"] / elements
    return found


if __name__ == "__main__":
    sys.exit(main())
