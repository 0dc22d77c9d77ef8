"""Chapter 7's detective on a GPU: how often is a pipeline wrong that waits too little?

    python -m benchmarks._tensor_cores_detective [folder]

The kernel as the reader gets it multiplies matrices of several depths, many times over;
a launch is wrong where any sum is. Needs a GPU.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

import kernelwright as kw
from benchmarks._sources import detective
from benchmarks._store import OUT, said_of, store

LAUNCHES = 500
SIDE = 2048
DEPTHS = (64, 128, 192, 256, 512, 1024, 2048)


def main() -> int:
    """Launch the broken kernel and the mended one; store how often each is wrong."""
    region = detective("tensor_cores", "stale_stage")
    rows: list[dict[str, Any]] = []
    for name, text in (("broken", region.text_stub), ("mended", region.text_solved)):
        kernel = kw.cuda.compile(text)["stale_stage"]
        launch = kernel[(SIDE // 128, SIDE // 128), 128, 98304]
        for depth in DEPTHS:
            a = torch.randn(SIDE, depth, device="cuda").half()
            b = torch.randn(depth, SIDE, device="cuda").half()
            exact = a.double() @ b.double()
            allowed = 2.0**-23 * depth**0.5 * (a.double().abs() @ b.double().abs())
            waste = torch.empty(64 * 2**20, device="cuda")
            wrong = []
            for number in range(LAUNCHES):
                c = torch.full((SIDE, SIDE), torch.nan, device="cuda")
                if number % 2:
                    waste.fill_(number)  # a and b must come from memory, not the L2
                launch(a, b, c, SIDE, SIDE, depth)
                # A NaN is not near anything.
                wrong.append((~((c.double() - exact).abs() <= allowed)).any())
            found = int(torch.stack(wrong).sum())
            rows.append(
                {
                    "name": f"{name}_{depth}",
                    "label": f"{name}, k = {depth:,}",
                    "tiles": depth // 64,
                    "launches": LAUNCHES,
                    "wrong": found,
                }
            )
            print(rows[-1])
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else OUT
    command = "python -m benchmarks._tensor_cores_detective"
    path = store("tensor_cores-detective", rows, out, command=command, side=SIDE)
    print(said_of(path))
    return 0


if __name__ == "__main__":
    sys.exit(main())
