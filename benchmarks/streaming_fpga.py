"""Chapter 17's circuits as chips: cells, DSPs, block RAM and Fmax of an ECP5.

    python -m benchmarks.streaming_fpga                 # place and route, and store
    python -m benchmarks.streaming_fpga --check         # exit 1 below a floor
    python -m benchmarks.streaming_fpga --only-correct  # simulate alone
    python -m benchmarks.streaming_fpga --out FOLDER    # not into benchmarks/results

Nothing is timed: figures are the reports of Yosys and nextpnr (``make setup
EXTRA=fpga``) for the slowest speed grade, with a fixed seed, and cycles are those of a
simulation. It needs no GPU, and stores ``streaming_fpga-ecp5.json``.
"""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Callable
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import _store
from solutions.streaming_fpga import (
    GUARD,
    AttentionHead,
    MaxRescaleUnit,
    StreamingAttention,
    StreamingMac,
    SystolicArray,
    attend,
    implement,
    simulate,
    tools,
)
from solutions.streaming_fpga.attention_head import sum_width
from solutions.streaming_fpga.synthesis import SynthesisError

DEVICE, SPEED, SEED = "85k", 6, 1
KEYS = 64
# What must not be lost, by the device's slug as every benchmark has it.
FLOORS = {"ecp5": {"streaming_attention": 80.0}}


class Circuit(NamedTuple):
    """A circuit to make a chip of."""

    name: str
    label: str
    make: Callable[[], Any]
    macs: int  # multiply-accumulates in a cycle


CIRCUITS = (
    Circuit("mac", "`StreamingMac`, 8 bits", lambda: StreamingMac(8, 24), 1),
    Circuit("unit", "`MaxRescaleUnit`, 20 bits", lambda: MaxRescaleUnit(20), 0),
    Circuit(
        "streaming_attention",
        "`StreamingAttention`, 16 x 8 bits",
        lambda: StreamingAttention(16, 8, sum_width(8, 1024)),
        32,
    ),
    Circuit("systolic", "`SystolicArray`, 4 x 4, 8 bits", SystolicArray, 16),
    Circuit("attention_head", "`AttentionHead`: with its divider", AttentionHead, 32),
)


def main() -> int:
    """Run it; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--only-correct", action="store_true")
    parser.add_argument("--out", type=Path, default=_store.OUT)
    asked = parser.parse_args()
    cycles = cycles_a_key()
    print(f"right: attention of {KEYS} keys, {cycles:g} cycles a key")
    if asked.only_correct:
        return 0
    if len(tools()) < 2:
        print("not measured: Yosys and nextpnr are missing (make setup EXTRA=fpga)")
        return 0
    rows: list[dict[str, Any]] = []
    failed: list[str] = []
    for circuit in CIRCUITS:
        try:
            rows.append(implemented(circuit))
        except SynthesisError as error:
            # Its row stays empty: not measured.
            print(f"{circuit.name}: {error}", file=sys.stderr)
            failed.append(circuit.name)
            continue
        if circuit.name in FLOORS["ecp5"]:
            rows[-1]["cycles_a_key"] = cycles
        print(rows[-1], flush=True)
        # What takes longest comes last: what there is so far is stored.
        store(rows, asked.out)
    floors = FLOORS["ecp5"]
    low = [
        f"{row['name']}: {row['fmax_mhz']} MHz; the floor is {floors[row['name']]}"
        for row in rows
        if row["fmax_mhz"] < floors.get(row["name"], 0)
    ]
    print("\n".join(low), end="\n" if low else "")
    return int(asked.check and bool(low or failed))


def store(rows: list[dict[str, Any]], folder: Path) -> None:
    """Write what was reported so far, with the tools' versions."""
    record = {
        "stem": "streaming_fpga",
        "device": f"ECP5 LFE5U-{DEVICE.removesuffix('k')}F, speed grade {SPEED}",
        "date": date.today().isoformat(),
        "command": "python -m benchmarks.streaming_fpga",
        "versions": {
            "python": platform.python_version(),
            "amaranth": version("amaranth"),
            **tools(),
        },
        "seed": SEED,
        "rows": rows,
    }
    _store.write("streaming_fpga-ecp5", record, folder)


def implemented(circuit: Circuit) -> dict[str, Any]:
    """Place and route a circuit; return its row."""
    print(f"placing {circuit.label}", flush=True)
    made = implement(circuit.make(), DEVICE, SPEED, SEED)
    figures = {k: v for k, v in made.row().items() if k not in ("device", "speed")}
    row = {"name": circuit.name, "label": circuit.label, **figures}
    if circuit.macs:
        row["macs_a_cycle"] = circuit.macs
        row["gops"] = round(2 * circuit.macs * made.fmax_mhz / 1e3, 3)
    return row


def cycles_a_key() -> float:
    """Simulate two queries, hold them to the reference, and count cycles a key."""
    rng = np.random.default_rng(0)
    query = rng.integers(-64, 64, (2, 16))
    keys, values = rng.integers(-128, 128, (2, 2, KEYS, 16))
    pairs = [
        [*k, *v, at == KEYS - 1]
        for of_query in zip(keys, values, strict=True)
        for at, (k, v) in enumerate(zip(*of_query, strict=True))
    ]
    done = simulate(AttentionHead(), {"query": query, "pair": pairs}, 2)
    for q, k, v, out in zip(query, keys, values, done.items, strict=True):
        np.testing.assert_array_equal(out, attend(q, k, v, GUARD))
    return (done.passed["pair"][-1] - done.passed["pair"][0] + 1) / (2 * KEYS)


if __name__ == "__main__":
    sys.exit(main())
