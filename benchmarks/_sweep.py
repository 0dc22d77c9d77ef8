"""Time a family's settings beside each other: ``python -m benchmarks._sweep FAMILY``.

A launcher's settings (threads, warps, tiles, stages) are chosen by hand. What was tried
stands in ``sweeps()`` of ``benchmarks.FAMILY``: settings, and what they are compared
with. Each is held against what it must compute, then timed in turn with the others, and
the fastest are printed first. Where settings may hang (``APART``), each sweep has a
process of its own, and costs no other.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module

import torch

import kernelwright as kw
from benchmarks._candidates import (
    Candidate,
    Times,
    median_ratio,
    row_of,
    time_in_turn,
)

ROUNDS, LIMIT_S, MOST = 3, 60, 20
APART = ("softmax",)


@dataclass(frozen=True)
class Sweep:
    """Settings that are timed beside each other.

    Args:
        title: what is printed above them.
        settings: a candidate each; ``today`` is the one that the launcher chooses.
        peers: what each is compared with, beside ``today``.
        right: what each must return, where that is checked.
        eps: how far off it may be, in eps of the largest value.
        seconds: of a candidate in a round.
    """

    title: str
    settings: Sequence[Candidate]
    peers: Sequence[Candidate] = ()
    right: torch.Tensor | None = None
    eps: float = 4
    seconds: float = 0.02


Sweeps = Sequence[Callable[[], Sweep]]


def is_right(one: Candidate, sweep: Sweep) -> bool:
    """Whether a setting computes what it must; say so where it does not."""
    if sweep.right is None:
        return True
    try:
        got = one.run(*one.arguments)
        assert isinstance(got, torch.Tensor)
        off = (got.double() - sweep.right).abs().max() / sweep.right.abs().max()
        near = sweep.eps * torch.finfo(got.dtype).eps
        got.fill_(torch.nan)  # so that the next one cannot leave it as it is
    except Exception as problem:  # whatever one does, the next is tried
        print(f"  FAILS {one.name}: {str(problem).splitlines()[0][:120]}")
        return False
    if not off < near:
        print(f"  WRONG {one.name}: off by {float(off):.2g} of the largest value")
    return bool(off < near)


def show(todo: Sequence[Candidate], times: Times, beside: Sequence[str]) -> None:
    """Print candidates, the fastest first, each beside some of them."""
    for one in sorted(todo, key=lambda one: min(times[one.name]))[:MOST]:
        row = row_of(one, times[one.name])
        said = [f"{one.label:<48} {row['median_ms']:9.4f} ms"]
        for key, unit in (("tflops", "TFLOP/s"), ("gbps", "GB/s")):
            if key in row:
                said.append(f"{row[key]:6.0f} {unit}")
        ratios = ((median_ratio(times[p], times[one.name]), p) for p in beside)
        said += [f"{ratio:5.2f} x {peer}" for ratio, peer in ratios]
        print(" ", *said, flush=True)


def do(sweep: Sweep) -> None:
    """Check the settings, time and print them."""
    print(f"== {sweep.title}", flush=True)
    right = [one for one in sweep.settings if is_right(one, sweep)]
    todo = [*sweep.peers, *right]
    times = time_in_turn(todo, ROUNDS, sweep.seconds)
    show(todo, times, [*(p.name for p in sweep.peers), *({"today"} & times.keys())])


def main() -> int:
    """Sweep a family, or the one group whose number is told; return how many failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("family")
    parser.add_argument("--only", type=int, help="the sweep of this number")
    options = parser.parse_args()
    if kw.cuda.backend() != "gpu":
        print("no NVIDIA GPU: nothing was timed")
        return 0
    sweeps: Sweeps = import_module(f"benchmarks.{options.family}").sweeps()
    failed = 0
    for number, made in enumerate(sweeps):
        if options.family in APART and options.only is None:
            argv = [sys.executable, "-m", "benchmarks._sweep", options.family]
            argv += ["--only", str(number)]
            try:
                failed += subprocess.run(argv, timeout=LIMIT_S).returncode != 0
            except subprocess.TimeoutExpired:
                print(f"  LOST sweep {number}: not done within {LIMIT_S} s")
                failed += 1
        elif options.only in (None, number):
            do(made())
    return failed


if __name__ == "__main__":
    sys.exit(main())
