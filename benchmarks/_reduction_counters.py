"""Chapter 4's rungs under Nsight Compute: ``python -m benchmarks._reduction_counters``.

Each rung's first launch over 2^26 floats runs once under ncu; the counters that say
why it is faster than the one before go to ``results/``. Needs a GPU and ncu.
"""

from __future__ import annotations

import sys

from benchmarks._ncu import BUSY, LOADS, WAITS, Values, count, in_our_units

N = 2**26
COUNTERS = {
    "duration_us": "gpu__time_duration.sum",
    "dram_bytes": "dram__bytes_read.sum",
    "dram_share": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "instructions": "smsp__inst_executed.sum",
    "lanes": "smsp__thread_inst_executed_per_inst_executed.ratio",
    "lanes_on": "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio",
    **LOADS,
    "red_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_red.sum",
    "shared_loads": "smsp__inst_executed_op_shared_ld.sum",
    "shared_load_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "shared_stores": "smsp__inst_executed_op_shared_st.sum",
    **BUSY,
    **WAITS,
}
_SHARES = ("dram_share", "occupancy", "issue_share")


def launch_all() -> list[str]:
    """Launch each rung once; return their names in order."""
    import torch

    from benchmarks import reduction as bench

    x = torch.ones(N, device="cuda")
    out = torch.zeros(N // 32, device="cuda")
    blocks = N // bench.THREADS
    todo = [
        ("atomic", "atomic", "sum_atomic", blocks),
        ("interleaved", "interleaved", "tree_interleaved", blocks),
        ("sequential", "sequential", "block_sum", blocks),
        ("shuffle", "shuffle", "warp_sum", blocks),
    ]
    for loads in (1, 2, 4, 8):
        kernel = f"sum_in_flight<{loads}>"
        todo.append((f"in_flight_{loads}", "in_flight", kernel, bench.GRID))
    todo.append(("single_pass", "single_pass", "sum_all", bench.GRID))
    for _, stem, kernel, grid in todo:
        bench.compiled(stem, kernel)[grid, bench.THREADS](x, out, N)
    torch.cuda.synchronize()
    return [name for name, *_ in todo]


def main() -> int:
    """Run this file under ncu and store what it counted."""
    kernels = "sum_|tree_|block_sum|warp_sum"
    return count("reduction", COUNTERS, kernels, launch_all, figures)


def figures(name: str, counted: Values) -> Values:
    """Return a launch's row: counters by our names; shares as fractions."""
    found = {"name": name, "label": name, "n": N, **in_our_units(counted, _SHARES)}
    if "duration_us" in found:
        found["read_gbps"] = 4 * N / found["duration_us"] / 1e3
    if "instructions" in found:
        found["instructions_a_warp"] = found["instructions"] / (N / 32)
    if "shared_load_wavefronts" in found:
        found["wavefronts_a_block"] = found["shared_load_wavefronts"] / (N / 256)
    return found


if __name__ == "__main__":
    sys.exit(main())
