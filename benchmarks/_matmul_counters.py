"""Chapter 6's rungs under Nsight Compute: ``python -m benchmarks._matmul_counters``.

Each rung multiplies 2048 x 2048 x 2048 once under ncu; the counters that say why it is
faster than the one before go to ``results/``. Needs a GPU and ncu.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

import kernelwright as kw
from benchmarks._ncu import BUSY, LOADS, Values, count, in_our_units, stalled
from solutions import matmul as family

SIZE = 2048
COUNTERS = {
    "duration_us": "gpu__time_duration.sum",
    **LOADS,
    "copy_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ldgsts.sum",
    "shared_loads": "smsp__inst_executed_op_shared_ld.sum",
    "shared_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "l1_share": "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_active",
    "l2_sectors": "lts__t_sectors_op_read.sum",
    "dram_bytes": "dram__bytes_read.sum",
    "instructions": "smsp__inst_executed.sum",
    "products": "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum",
    "cycles": "smsp__cycles_active.sum",
    "occupancy": BUSY["occupancy"],
    "stall_memory": stalled("long_scoreboard"),
    "stall_lsu": stalled("lg_throttle"),
    "stall_shared": stalled("short_scoreboard"),
    "stall_mio": stalled("mio_throttle"),
    "stall_barrier": stalled("barrier"),
}
_SHARES = ("occupancy", "l1_share")
STALLS = {
    "stall_memory": "global memory",
    "stall_lsu": "the queue to L1",
    "stall_shared": "shared memory",
    "stall_mio": "the queue to shared memory",
    "stall_barrier": "barriers",
}


def launch_all() -> list[str]:
    """Launch each rung once; return their names in order."""
    from benchmarks.matmul import RUNGS

    a, b = (torch.randn(SIZE, SIZE, device="cuda") for _ in range(2))
    names = [*RUNGS, "auto"]
    for name in names:
        family.matmul(a, b, kernel=name)  # type: ignore[arg-type]
    out = torch.empty_like(a)
    plain_lanes()[(SIZE // 128, SIZE // 128), 256](a, b, out, SIZE, SIZE, SIZE)
    torch.cuda.synchronize()
    return [*names, "plain_lanes"]


def plain_lanes() -> kw.cuda.Kernel:
    """Return the last rung with the lanes of a warp in 8 rows of 4, in order."""
    text = (Path(family.__file__).parent / "double_buffered.cu").read_text()
    for ours, plain in (
        ("(lane / 2 % 2 + lane / 8 * 2)", "(lane / 4)"),
        ("(lane % 2 + lane / 4 % 2 * 2)", "(lane % 4)"),
    ):
        assert ours in text
        text = text.replace(ours, plain)
    return kw.cuda.compile(text)["matmul_fast"]


def main() -> int:
    """Run this file under ncu and store what it counted."""
    return count("matmul", COUNTERS, "^matmul", launch_all, figures)


def figures(name: str, counted: Values) -> Values:
    """Return a launch's row: counters by our names, and what follows from them."""
    label = name.replace("_", " ")
    found: Values = {"name": name, "label": label, "size": SIZE}
    found |= in_our_units(counted, _SHARES)
    warps = SIZE**3 / 32  # products, by warps of 32
    found["tflops"] = 2 * SIZE**3 / found["duration_us"] / 1e6
    found["l1_bytes_per_product"] = 32 * found["load_sectors"] / SIZE**3
    found["wavefronts_per_product"] = found["shared_wavefronts"] / warps
    if found["shared_loads"]:
        each = found["shared_wavefronts"] / found["shared_loads"]
        found["wavefronts_per_load"] = each
    found["instructions_per_product"] = found["instructions"] / warps
    found["ffma_share"] = found["products"] / 32 / found["instructions"]
    found["ffma_cycles"] = found["products"] / 32 / found["cycles"]
    waits = {name: found.get(name, 0.0) for name in STALLS}
    found["waits_most_for"] = STALLS[max(waits, key=lambda name: waits[name])]
    return found


if __name__ == "__main__":
    sys.exit(main())
