"""Chapter 9's rungs under Nsight Compute.

    python -m benchmarks._flash_attention_counters [folder]

Each rung attends once under ncu, 16 heads of 4,096 tokens; the counters that say why it
is faster than the one before go to ``results/``. Needs a GPU and ncu.
"""

from __future__ import annotations

import sys

from benchmarks._ncu import Values, count
from benchmarks._tensor_cores_counters import COUNTERS, figures

HEADS, LENGTH = 16, 4096
RUNGS = (
    ("forward", 64, "float32"),
    ("causal", 64, "float32"),
    ("wmma", 64, "bfloat16"),
    ("wmma", 128, "bfloat16"),
    ("mma", 64, "bfloat16"),
    ("mma", 128, "bfloat16"),
)


def launch_all() -> list[str]:
    """Launch each rung once; return their names in order."""
    import torch

    from solutions.flash_attention import flash_attention

    for kernel, dim, dtype in RUNGS:
        shape = (1, HEADS, LENGTH, dim)
        q, k, v = (
            torch.randn(shape, device="cuda", dtype=getattr(torch, dtype))
            for _ in range(3)
        )
        flash_attention(q, k, v, causal=kernel == "causal", kernel=kernel)  # type: ignore[arg-type]
    torch.cuda.synchronize()
    return [f"{kernel}_{dim}" for kernel, dim, _ in RUNGS]


def main() -> int:
    """Run this file under ncu and store what it counted."""
    about = {"heads": HEADS, "n": LENGTH}
    return count("flash_attention", COUNTERS, "flash_", launch_all, row, about)


def row(name: str, counted: Values) -> Values:
    """Return a launch's row: chapter 7's figures, and wavefronts a product."""
    found = figures(name, counted)
    if name.startswith(("wmma", "mma")):
        waves = found["shared_load_wavefronts"] + found["shared_store_wavefronts"]
        found["wavefronts_per_hmma"] = waves / found["hmma"]
    return found


if __name__ == "__main__":
    sys.exit(main())
