"""Check and time every candidate on a GPU: right first, then beside what it replaces.

    python -m benchmarks.candidates                         all of them
    python -m benchmarks.candidates hd64_three hd64_four    those two
    python -m benchmarks.candidates --seconds 0.1           longer timings
    python -m benchmarks.candidates --out DIR               where the JSON goes

Each candidate is checked in a process of its own, several at once: against float64 on
the shapes it names, and against the solution on those that are timed, which compiles
everything on the way. What does not compile, is wrong or hangs is named and left out.
Those that replace the same solution are then timed with it and with the peer, in turn,
in the same rounds. Without a GPU the candidates and their predictions are listed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

import benchmarks.candidates
from benchmarks._candidates import Candidate, Row, median_ratio, row_of, time_in_turn
from benchmarks._store import RESULTS, store
from benchmarks.candidates.interface import Proposal, Results, Shape

ROUNDS = 5
FROM_SOLUTION = 0.01
"""How far from the solution's result, relative to it, a timed one may be at most."""

CHECK_LIMIT, TIME_LIMIT, AT_ONCE = 90.0, 60.0, 8
"""Seconds for a candidate's check and for a group's timing; checks run together."""


def main() -> int:
    """Check, time, print and store; return how many candidates fell out."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="candidates; all where none is named")
    parser.add_argument("--seconds", type=float, default=0.05, help="of one timing")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for results")
    parser.add_argument("--only", choices=("check", "time"), help=argparse.SUPPRESS)
    parser.add_argument("--told", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    proposals, broken = found()
    chosen = choose(proposals, options.names)
    if options.only == "check":
        return check(chosen[0], options.told)
    if options.only == "time":
        return time_group(chosen, options.seconds, options.told)
    failed = dict(broken)
    if not torch.cuda.is_available():
        for one in chosen:
            print(f"{one.name}, for {one.replaces}: {one.because}")
            for shape, gain in one.predicted.items():
                print(f"    {shape}: {gain:.2f} predicted")
        print("no NVIDIA GPU: nothing was checked, nothing timed")
    else:
        failed |= measure(chosen, options.seconds, options.out)
    for name, why in failed.items():
        print(f"FAILED {name}: {why}")
    return len(failed)


# --- which candidates there are -----------------------------------------------------


def found() -> tuple[list[Proposal], dict[str, str]]:
    """Import every module beside this one; return proposals, and what did not import.

    Raises:
        ValueError: two proposals have one name.
    """
    proposals: list[Proposal] = []
    broken: dict[str, str] = {}
    for module in pkgutil.iter_modules(benchmarks.candidates.__path__):
        if module.name == "__main__":
            continue
        name = f"benchmarks.candidates.{module.name}"
        try:
            offered = getattr(importlib.import_module(name), "CANDIDATES", ())
        except Exception as error:  # whatever it is, the other modules are measured
            broken[name] = _short(error)
            continue
        # A module may import another's.
        proposals += [o for o in offered if not any(o is p for p in proposals)]
    names = [one.name for one in proposals]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"two candidates have one name: {', '.join(twice)}")
    return proposals, broken


def choose(proposals: Sequence[Proposal], names: Sequence[str]) -> list[Proposal]:
    """Return the proposals that are named, or all.

    Raises:
        SystemExit: a name that none has.
    """
    known = {one.name: one for one in proposals}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SystemExit(f"no candidate is called {', '.join(unknown)}: {[*known]}")
    return [known[name] for name in names] if names else list(proposals)


def groups(proposals: Sequence[Proposal]) -> dict[str, list[Proposal]]:
    """Put together what replaces the same solution."""
    together: dict[str, list[Proposal]] = {}
    for one in proposals:
        together.setdefault(one.replaces, []).append(one)
    return together


# --- a process each -----------------------------------------------------------------


def measure(chosen: Sequence[Proposal], seconds: float, out: Path) -> dict[str, str]:
    """Check all, time those that are right, store; return who failed and why."""
    began = time.perf_counter()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = pool.map(lambda one: ask("check", [one.name], CHECK_LIMIT), chosen)
        checks = dict(zip([one.name for one in chosen], answers, strict=True))
    failed = {name: why for name, (_, why) in checks.items() if why}
    rows: list[Row] = []
    for solution, group in groups([o for o in chosen if o.name not in failed]).items():
        told, bad = time_apart(solution, [one.name for one in group], seconds)
        rows += told
        failed |= bad
    errors = [row for told, _ in checks.values() for row in told]
    print_table(rows)
    path = store("candidates", rows, out, errors=errors, failed=failed)
    print(f"stored in {path}; {time.perf_counter() - began:.0f} s")
    return failed


def time_apart(
    solution: str, names: Sequence[str], seconds: float
) -> tuple[list[Row], dict[str, str]]:
    """Time a group in one process; where that fails, each candidate in its own."""
    words = ["--seconds", str(seconds)]
    rows, why = ask("time", names, TIME_LIMIT, words)
    if not why:
        return rows, {}
    if len(names) == 1:
        return rows, {names[0]: f"beside {solution}: {why}"}
    rows, failed = [], {}
    for name in names:
        more, bad = time_apart(solution, [name], seconds)
        rows, failed = rows + more, failed | bad
    return rows, failed


def ask(
    what: str, names: Sequence[str], limit: float, more: Sequence[str] = ()
) -> tuple[list[Row], str]:
    """Run this file for some candidates; return the rows it told, and what went wrong.

    Args:
        what: ``check`` or ``time``.
        names: of candidates.
        limit: seconds after which the process is ended.
        more: words for its command line.
    """
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "told.json"
        command = [
            sys.executable, "-m", "benchmarks.candidates", *names, "--only", what,
            "--told", str(told), *more,
        ]  # fmt: skip
        why = run_within(command, limit)
        rows = json.loads(told.read_text()) if told.exists() else []
    return rows, why


def run_within(command: Sequence[str], limit: float) -> str:
    """Run a command; return why it failed, or nothing."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return f"not done within {limit:.0f} s"
    if not done.returncode:
        return ""
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return lines[-1][:400] if lines else f"ended with {done.returncode}"


def tell(path: Path, rows: Sequence[Row]) -> None:
    """Leave rows for who asked, whole even where this process is ended."""
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(list(rows)))
    fresh.replace(path)


# --- right --------------------------------------------------------------------------


def check(one: Proposal, told: Path) -> int:
    """Hold a candidate against float64 and the solution; return how many are wrong."""
    rows: list[Row] = []
    wrong = []
    for shape in dict.fromkeys((*one.checked, *one.timed)):
        try:
            given = one.prepare(shape)
            results = one.run(given)()
            torch.cuda.synchronize()
            if shape in one.checked:
                errors, bad = compare(results, *one.exact(given))
            else:
                errors, bad = compare_with_solution(results, one.solution(given)())
        except Exception as error:  # told with the shape it came from
            traceback.print_exc()
            wrong.append(f"{shape.label}: {_short(error)}")
            break
        rows.append({"name": one.name, "shape": shape.label, "errors": errors})
        tell(told, rows)
        wrong += [f"{shape.label}: {words}" for words in bad]
    print("; ".join(wrong), file=sys.stderr)
    return len(wrong)


def compare(
    results: Results, exact: Results, allowed: Any
) -> tuple[dict[str, float], list[str]]:
    """Return the worst error by name, and what is too far off to be right.

    Where the exact result is infinite, so must the candidate's be.
    """
    errors: dict[str, float] = {}
    bad = []
    for name, most in allowed.items():
        got, wanted = results[name].double(), exact[name].double()
        if got.shape != wanted.shape:
            bad.append(f"{name} is {tuple(got.shape)}, not {tuple(wanted.shape)}")
            continue
        far = torch.where(got == wanted, 0.0, (got - wanted).abs())
        errors[name] = float(far.max())
        if not bool((far <= most).all()):
            bad.append(f"{name} is off by {errors[name]:.2e}, at most {most:.2e}")
    return errors, bad


def compare_with_solution(
    results: Results, todays: Results | Sequence[torch.Tensor]
) -> tuple[dict[str, float], list[str]]:
    """Return how far each result is from today's, relative to it, and what is too far.

    For sizes whose matrix of weights in float64 would not fit. Without names, today's
    results are in the candidate's order.
    """
    if not isinstance(todays, Mapping):
        todays = dict(zip(results, todays, strict=True))
    far = {
        name: float((results[name].float() - wanted.float()).norm())
        / float(wanted.float().norm())
        for name, wanted in todays.items()
    }
    bad = [
        f"{name} is {off:.2e} of its size from the solution's"
        for name, off in far.items()
        if not off <= FROM_SOLUTION
    ]
    return far, bad


# --- fast ---------------------------------------------------------------------------


def time_group(group: Sequence[Proposal], seconds: float, told: Path) -> int:
    """Time candidates, today's solution and the peer in the same rounds."""
    rows: list[Row] = []
    first = group[0]
    for shape in first.timed:
        given = first.prepare(shape)
        todo = contenders(group, shape, given)
        for one in todo:
            one.run()  # what is left to compile
        times = time_in_turn(todo, ROUNDS, seconds, warm_ups=1)
        rows += compared(todo, times, group, shape)
        tell(told, rows)
        del given, todo
        torch.cuda.empty_cache()
    return 0


def contenders(
    group: Sequence[Proposal], shape: Shape, given: object
) -> list[Candidate]:
    """Name the solution, the peer and the candidates at one shape."""
    first = group[0]
    runs: list[tuple[str, Callable[[], object]]] = [
        ("solution", first.solution(given)),
        (first.peer_name, first.peer(given)),
        *((one.name, one.run(given)) for one in group),
    ]
    due = first.flops(shape)
    return [Candidate(name, name, run, (), flops=due) for name, run in runs]


def compared(
    todo: Sequence[Candidate],
    times: dict[str, list[float]],
    group: Sequence[Proposal],
    shape: Shape,
) -> list[Row]:
    """Return a row each: its times, and how it stands to solution and peer."""
    predicted = {one.name: one.predicted.get(shape.label) for one in group}
    peer = group[0].peer_name
    rows = []
    for one in todo:
        row = row_of(one, times[one.name])
        row |= {
            "name": f"{one.name}: {shape.label}", "candidate": one.name,
            "shape": shape.label, "replaces": group[0].replaces, "peer": peer,
            "dtype": str(shape.dtype).removeprefix("torch."),
            "of_solution": median_ratio(times["solution"], times[one.name]),
            "of_peer": median_ratio(times[peer], times[one.name]),
        }  # fmt: skip
        if predicted.get(one.name) is not None:
            row["predicted"] = predicted[one.name]
        rows.append(row)
    return rows


def print_table(rows: Sequence[Row]) -> None:
    """Print what was measured, and what was predicted beside it."""
    head = ("candidate", "ms", "TFLOP/s", "of solution", "predicted", "of peer")
    for shape in dict.fromkeys(row["shape"] for row in rows):
        print(f"\n{shape}")
        print("{:<28} {:>9} {:>8} {:>12} {:>10} {:>8}".format(*head))
        for row in (row for row in rows if row["shape"] == shape):
            guess = f"{row['predicted']:.2f}" if "predicted" in row else ""
            print(
                f"{row['candidate']:<28} {row['median_ms']:9.4f} "
                f"{row.get('tflops', 0.0):8.1f} {row['of_solution']:12.3f} "
                f"{guess:>10} {row['of_peer']:8.3f}"
            )
    gains = [row["of_solution"] for row in rows if "predicted" in row]
    if gains:
        print(f"\ncandidates over solutions, median: {statistics.median(gains):.3f}")


def _short(error: BaseException) -> str:
    """Say an error in a line."""
    words = str(error).strip().splitlines()
    return f"{type(error).__name__}: {words[-1][:300] if words else ''}"


if __name__ == "__main__":
    sys.exit(main())
