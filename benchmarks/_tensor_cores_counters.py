"""Chapter 7's rungs under Nsight Compute.

    python -m benchmarks._tensor_cores_counters [folder]

Each rung multiplies 8192 x 8192 once under ncu, in bf16; the counters that say why it
is faster than the one before go to ``results/``. Needs a GPU and ncu.
"""

from __future__ import annotations

import sys

from benchmarks._ncu import WAITS, Values, count, fractions, stalled

SIDE = 8192
COUNTERS = {
    "duration_ms": "gpu__time_duration.sum",
    "tensor_share": (
        "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active"
    ),
    "hmma": "sm__inst_executed_pipe_tensor_op_hmma.sum",
    "ldsm": "smsp__inst_executed_op_ldsm.sum",
    "ldgsts": "smsp__inst_executed_op_ldgsts.sum",
    "instructions": "smsp__inst_executed.sum",
    "shared_load_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "shared_store_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    "load_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "store_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    "l2_bytes": "lts__t_bytes.sum",
    "dram_bytes": "dram__bytes_read.sum",
    **WAITS,
    "waits_for_shared": stalled("short_scoreboard"),
    "waits_for_tensor": stalled("math_pipe_throttle"),
}
SWIZZLE = "kw::swizzled"
PLAIN = """__device__ int plain(int row, int column, int width) {
    return row * width + column;
}
"""


def launch_all() -> list[str]:
    """Launch each rung once; return their names in order."""
    import torch

    import kernelwright as kw
    from solutions.tensor_cores import gemm, tiles

    a, b = (torch.randn(SIDE, SIDE, device="cuda").bfloat16() for _ in range(2))
    out = torch.empty(SIDE, SIDE, device="cuda")
    dtype = torch.bfloat16
    texts = {name: (name, tiles.rung_source(name, dtype)) for name in tiles.RUNGS}
    written = tiles.rung_source("wmma_shared", dtype, as_written=True)
    texts["wmma_shared_as_written"] = ("wmma_shared", written)
    swizzled = texts["mma_swizzled"][1]
    assert SWIZZLE in swizzled
    plain = PLAIN + swizzled.replace(SWIZZLE, "plain")
    texts["mma_not_swizzled"] = ("mma_swizzled", plain)
    unpadded = texts["wmma_shared"][1].replace("PAD = 8", "PAD = 0")
    texts["wmma_not_padded"] = ("wmma_shared", unpadded)
    for stem, text in texts.values():
        rung = tiles.RUNGS[stem]
        kernel = kw.cuda.compile(text, name=f"{stem}.cu")[rung.kernel]
        launch = kernel[rung.grid(SIDE, SIDE), rung.threads, rung.shared_bytes]
        launch(a, b, out, SIDE, SIDE, SIDE)
    gemm(a, b)
    torch.cuda.synchronize()
    return [*texts, "gemm"]


def main() -> int:
    """Run this file under ncu and store what it counted."""
    kernels = "wmma_tile|wmma_gemm|mma_sync_gemm|gemm_"
    about = {"side": SIDE}
    return count("tensor_cores", COUNTERS, kernels, launch_all, figures, about)


def figures(name: str, counted: Values) -> Values:
    """Return a launch's row: counters by our names; times in ms, bytes in GB."""
    shares = [one for one in counted if one.endswith("_share")]
    found = {"name": name, "label": name, **fractions(counted, shares)}
    if "duration_ms" in found:
        found["duration_ms"] /= 1e6  # from ns
    for level in ("l2", "dram"):
        if f"{level}_bytes" in found:
            found[f"{level}_gb"] = found[f"{level}_bytes"] / 1e9
    for way in ("load", "store"):
        wavefronts = found.get(f"shared_{way}_wavefronts", 0.0)
        if wavefronts:
            found[f"{way}_conflict_share"] = found[f"{way}_conflicts"] / wavefronts
    return found


if __name__ == "__main__":
    sys.exit(main())
