"""Chapter 8's rungs under Nsight Compute: ``python -m benchmarks._softmax_counters``.

Each rung, and the package's ``softmax`` at the sizes of the chapter's tables, runs once
under ncu. How much it asks for, how much of that L2 gives and how much comes from
memory goes to ``results/``. Needs a GPU and ncu.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial

import torch

from benchmarks import softmax as bench
from benchmarks._candidates import short
from benchmarks._layernorm_counters import COUNTERS as OF_ROWS
from benchmarks._layernorm_counters import an_element
from benchmarks._ncu import Values, count, in_our_units
from solutions.softmax import softmax

COUNTERS = {
    **OF_ROWS,
    "l1_share": "l1tex__t_sector_pipe_lsu_mem_global_op_ld_hit_rate.pct",
    "exponential_share": "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active",
}
_SHARES = ("occupancy", *(name for name in COUNTERS if name.endswith("_share")))
KERNELS = (
    "^(softmax_naive|softmax_safe|softmax_online|softmax_kernel|piece_kernel"
    "|combine_kernel|rows_kernel|forward_kernel)$"
)
PASSES = {"long_rows": ("long_rows_pieces", "long_rows_combine")}
"""What the launches of a rung that has more than one are called."""


def launches() -> Iterator[tuple[str, int, int, Callable[[], object]]]:
    """Name what runs, in order, with the rows and columns that it runs on."""
    for rows, columns in bench.RUNG_SHAPES:
        x = torch.randn(rows, columns, device="cuda")
        for name, run in bench.rungs_of(x).items():
            yield name, rows, columns, run
    for rows, columns in bench.SHAPES:
        for dtype in bench.DTYPES:
            x = torch.randn(rows, columns, device="cuda").to(dtype)
            yield f"softmax_{short(dtype)}", rows, columns, partial(softmax, x)


def launch_all() -> list[str]:
    """Launch each once; return a name for each kernel, in order."""
    names = []
    for name, rows, columns, run in launches():
        run()
        torch.cuda.synchronize()
        names += [f"{part}_{rows}x{columns}" for part in PASSES.get(name, (name,))]
    return names


def main() -> int:
    """Run this file under ncu and store what it counted."""
    return count("softmax", COUNTERS, KERNELS, launch_all, figures)


def figures(name: str, counted: Values) -> Values:
    """Return a launch's row: counters, per element of x where it says so."""
    what, _, size = name.rpartition("_")
    rows, columns = map(int, size.split("x"))
    elements = rows * columns
    found = {"name": name, "label": f"`{what}`, {rows:,} x {columns:,}", "n": elements}
    return found | an_element(in_our_units(counted, _SHARES), elements)


if __name__ == "__main__":
    sys.exit(main())
