"""Time softmax's launch with other settings: ``python -m benchmarks.sweep_softmax``.

``solutions.softmax.launch`` fixes by hand how many numbers make a piece, how many warps
have it, how many registers a thread gets, and which rows stay whole. Each choice is
checked against float64, then timed in rounds beside today's and a copy of as many
bytes. A shape and direction has a process of its own: a setting that fails is named,
one that hangs costs that group alone.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import torch
import triton

import kernelwright as kw
from benchmarks._candidates import Candidate, print_fastest, time_in_turn
from solutions.softmax import launch

SHAPES = ((16384, 8192), (4096, 65_536), (1024, 262_144), (256, 1_048_576))
DTYPES = ("bfloat16", "float32")
PIECES, WARPS, REGISTERS = (4096, 8192, 16_384, 32_768), (4, 8, 16, 32), (None, 56)
MOST_PIECES = 128  # fewer than an H200's SMs: all programs of a row must have one
A_THREAD, A_PROGRAM = 128, 48 * 1024  # widened numbers that registers hold
MOST_EPS, SECONDS, LIMIT_S = 16.0, 0.02, 60


def settings(columns: int, arrays: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Give each choice that registers hold, as names of the launch and their values.

    Args:
        columns: of a row.
        arrays: whose numbers a program keeps: 1 forward, 2 backward.
    """
    plan = launch.rows_plan
    for warps in WARPS:
        fits = min(A_PROGRAM, A_THREAD * 32 * warps) // arrays
        block, rows, _ = plan(columns)
        if block * rows <= fits:
            whole = {
                "REGISTERS": 1 << 40,
                "rows_plan": lambda n, w=warps: (*plan(n)[:2], w),
            }
            yield f"whole rows, {warps} warps", whole
        for piece in (
            p for p in PIECES if p <= min(fits, triton.next_power_of_2(columns))
        ):
            for most in REGISTERS if triton.cdiv(columns, piece) <= MOST_PIECES else ():
                crews = dict.fromkeys((2, 4, 8), launch.Crew(warps, most))
                name = f"pieces of {piece}, {warps} warps, {most or 'any'} registers"
                together = {
                    "MOST_TOGETHER": MOST_PIECES,
                    "FORWARD": crews,
                    "BACKWARD": crews,
                }
                yield name, {"REGISTERS": 0, "PIECE": piece, **together}
            if warps == 8:  # as the three launches have it
                apart = {"REGISTERS": 0, "PIECE": piece, "MOST_TOGETHER": 0}
                yield f"pieces of {piece}, launch by launch", apart


def sweep(rows: int, columns: int, kind: str, way: str) -> None:
    """Check and time the settings of one group, and print them, the fastest first."""
    x = torch.randn(rows, columns, device="cuda").to(getattr(torch, kind))
    y = torch.softmax(x, 1)
    given, right = (x,), torch.softmax(x.double(), 1)
    if way == "backward":
        given, v, g = (y, x), y.double(), x.double()
        right = v * (g - (v * g).sum(1, keepdim=True))
    out = torch.empty_like(x)
    into = launch.forward_into if way == "forward" else launch.backward_into
    every = {"today": {}, **dict(settings(columns, len(given)))}
    today = {name: getattr(launch, name) for one in every.values() for name in one}
    bytes_moved = (1 + len(given)) * x.nbytes

    def run(name: str) -> None:
        vars(launch).update(today | every[name])
        into(*(t.unsqueeze(-1) for t in (*given, out)))

    todo = []
    for name in every:
        try:
            out.fill_(torch.nan)
            run(name)
            off = (out.double() - right).abs().max() / right.abs().max()
        except Exception as problem:  # whatever one does, the next is tried
            print(f"  FAILS {name}: {str(problem).splitlines()[0][:120]}")
            continue
        if not float(off) < MOST_EPS * torch.finfo(x.dtype).eps:
            print(f"  WRONG {name}: off by {float(off):.2g} of the largest")
            continue
        todo.append(Candidate(name, name, run, (name,), bytes_moved, kind))
    half = torch.randint(0, 256, (bytes_moved // 2,), dtype=torch.uint8, device="cuda")
    copied = torch.empty_like(half)
    todo.append(Candidate("copy", "copy", copied.copy_, (half,), bytes_moved, kind))
    times = time_in_turn(todo, 3, SECONDS)
    print(f"== {way} {kind} {rows} x {columns}")
    print_fastest(times, ("copy", "today"), 8)


def main() -> int:
    """Sweep every group, or the one that the arguments name."""
    if kw.cuda.backend() != "gpu":
        print("no NVIDIA GPU: nothing was timed")
        return 0
    if len(sys.argv) > 1:
        rows, columns, kind, way = sys.argv[1:]
        sweep(int(rows), int(columns), kind, way)
        return 0
    lost = 0
    for way in ("forward", "backward"):
        for kind in DTYPES:
            for shape in SHAPES:
                words = [*map(str, shape), kind, way]
                argv = [sys.executable, "-m", "benchmarks.sweep_softmax", *words]
                try:
                    lost += subprocess.run(argv, timeout=LIMIT_S).returncode != 0
                except subprocess.TimeoutExpired:
                    print(f"  LOST {' '.join(words)}: not done within {LIMIT_S} s")
                    lost += 1
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
