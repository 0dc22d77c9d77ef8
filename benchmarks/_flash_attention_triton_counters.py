"""Chapter 10's kernels under Nsight Compute.

    python -m benchmarks._flash_attention_triton_counters [folder]

Each kernel runs once under ncu, on causal attention over 16,384 tokens or on a cache of
32,768; the counters that say what it waits for go to ``results/``. Needs ncu.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

from benchmarks._ncu import Values, count

COUNTERS = {
    "duration_ns": "gpu__time_duration.sum",
    "tensor_share": (
        "sm__pipe_tensor_op_hmma_type_hmma_hgmma_qgmma_cycles_active"
        ".avg.pct_of_peak_sustained_active"
    ),
    "exponential_share": "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active",
    "wgmma": "sm__inst_executed_pipe_tensor_op_gmma.sum",
    "instructions": "smsp__inst_executed.sum",
    "l2_bytes": "lts__t_bytes.sum",
    "dram_bytes": "dram__bytes_read.sum",
}
KERNELS = "causal_kernel|fast_kernel|_forward_kernel|_backward_kernel|split_kernel"


def launches() -> Iterator[tuple[str, Callable[[], object]]]:
    """Name what is launched, in order; each launches one kernel of KERNELS."""
    import torch

    from benchmarks._attention import draw, options_of
    from solutions.flash_attention_triton import (
        forward,
        hopper,
        hopper_64,
        hopper_backward,
    )
    from solutions.flash_attention_triton.causal import flash_triton_causal
    from solutions.flash_attention_triton.decode import decode_attention
    from solutions.flash_attention_triton.fast import flash_fast

    for d, heads in ((128, 16), (64, 32)):
        q, k, v = draw(1, heads, 16384, d)
        options = options_of((q, k, v), True)
        yield f"causal_rung_{d}", lambda q=q, k=k, v=v: flash_triton_causal(q, k, v)
        yield f"fast_rung_{d}", lambda q=q, k=k, v=v: flash_fast(q, k, v)
        yield (
            f"triton_{d}",
            lambda q=q, k=k, v=v: forward(q, k, v, causal=True, kernel="triton"),
        )
        for turn, name in ((False, "together"), (True, "in_turn")):
            yield (
                f"gluon_{name}_{d}",
                lambda q=q, k=k, v=v, o=options, t=turn: hopper.forward_gluon(
                    q, k, v, o, in_turn=t
                ),
            )
        if d == 64:
            yield (
                "gluon_three_64",
                lambda q=q, k=k, v=v, o=options: hopper_64.forward_gluon_64(q, k, v, o),
            )
        else:
            # What forward left does not matter to what backward waits for.
            lse = torch.zeros(q.shape[:3], device=q.device)
            yield (
                "gluon_backward_128",
                lambda q=q, k=k, v=v, s=lse, o=options: hopper_backward.backward_gluon(
                    q, q, k, v, q, s, o
                ),
            )
    (q,) = draw(16, 32, 128, count=1)
    k, v = draw(16, 4, 32768, 128, count=2)
    for splits in (1, 2, 16):
        yield f"decode_{splits}", lambda s=splits: decode_attention(q, k, v, splits=s)


def launch_all() -> list[str]:
    """Launch each kernel once; return their names in order."""
    import torch

    names = []
    for name, launch in launches():
        launch()
        torch.cuda.synchronize()
        names.append(name)
    return names


def main() -> int:
    """Run this file under ncu and store what it counted."""
    return count("flash_attention_triton", COUNTERS, KERNELS, launch_all, row)


def row(name: str, counted: Values) -> Values:
    """Return a launch's row: counters by our names, as ncu has them."""
    return {"name": name, "label": name.replace("_", " "), **counted}


if __name__ == "__main__":
    sys.exit(main())
