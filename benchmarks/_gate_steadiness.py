"""Why the speed gate and a benchmark disagree, on a GPU, in one table.

    python -m benchmarks._gate_steadiness
    --seconds 90   for all of it; what does not fit is named as left out
    --out FOLDER   for gate_steadiness.json; $OUT, or grades/gpu, when absent

``mean_abs`` shows 0.36 of a copy in the gate and 0.99 in a benchmark, ``sum_all`` 0.57
to 0.61 of torch.sum and 1.03; ``wmma_tile`` was taken out of the gate. All three are
kernels whose outputs lie ready, so that allocating is no difference. What is, the most
probable first:

1.  Pages that the learner's process has not met since the GPU last worked for it. A
    turn has sets of its own for every call, some 51 GB in all for the two sums
    (``stand.calls_in_turn``: 12 ms of calls, each on half a gigabyte or more), and
    between two turns the GPU works for the trusted process, in another address space:
    each page is translated anew, once a turn. A kernel whose blocks stay and go forward
    together (mean_abs: 256 blocks in one wave, all on the same 8 MiB; sum_all: 1,056
    blocks on the same 17 MB) waits for each new page as a whole. A copy's blocks, and
    sum_squared's, end and are followed by others, so that some wait while the rest
    works. The ratios agree with it: mean_abs goes down its matrix in 64 such steps and
    sum_all in 62, and what either loses comes to some 3 us a step (computed: 0.35 ms
    for 0.126, 0.42 for 0.24), as one look-up that all wait for. Expected: ``touched``
    and ``warmed`` near ``bench``, ``gate`` slow.
2.  More pages than the GPU's translations hold, whoever met them last: a benchmark
    rotates through 1.1 GB (mean_abs) or 8.6 GB (sum_all). Expected: ``touched``,
    ``warmed`` and ``here`` as slow as ``gate``; ``here_few`` and ``small`` fast.
3.  How the memory is mapped: the learner's process opens a handle (cuIpcOpenMemHandle),
    whose pages may be smaller than those of an allocation of its own. Expected: all of
    the court's ways slow, ``small`` too, and ``here`` fast.
4.  The clock: before a learner's turn the GPU draws inputs, waits while processes are
    held still, and copies for a millisecond. Expected: the SM clock of ``gate`` below
    that of ``bench``. For the two sums it is the least probable: their peers meet the
    same. For wmma_tile it is the first: its turn takes 0.3 s at little power, cuBLAS's
    13 ms at the limit of power, so that the peer beside it finds a rested chip, and
    runs up to a sixth faster than a settled one. Expected there: ``settled`` has
    another ratio than ``gate``, and another clock in the peer's turn.

The court's ways (``gate``, ``touched``, ``warmed``, ``settled``, and ``small``: the
gate's on as many bytes as a benchmark) run the gate's own processes and rounds;
``here`` and what follows it run in one process. A row is the median of its rounds: ms
of a call by the supervisor's clock and by the device's events, the peer's time over it,
and the clocks that NVML told meanwhile.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from benchmarks import _gate_court, _gate_here
from benchmarks._gate_clock import Clocks
from benchmarks._gate_court import Heard
from benchmarks._gate_exercises import EXERCISES
from benchmarks._tune_watch import Message, be_watched, tell, watch

if TYPE_CHECKING:
    from autograder.workers import ForkServer

SMALL_BYTES = 9.0e9
"""Of a turn's sets in ``small``: as many as sum_all's benchmark rotates through."""

ROUNDS = 4
LIMIT_S = 45.0
BY_NAME = {exercise.id: exercise for exercise in EXERCISES}
HERE = ("here", "here_again", "here_few", "bench")
TITLES = {
    **{name: title for name, (title, _) in _gate_court.WAYS.items()},
    **_gate_here.WAYS,
}
# Each a process of its own, and the share of the seconds at which it must end. The
# first is the shorter, and what the second one shows is compared with it.
PARTS: tuple[tuple[str, float], ...] = (("here", 0.35), ("court", 1.0))


def ways_of(part: str, exercise: str) -> tuple[str, ...]:
    """Return the ways of a part in which an exercise is timed."""
    if exercise == "wmma_tile":  # 0.3 s a turn, and nothing to do with pages
        return ("here", "bench") if part == "here" else ("gate", "settled")
    if part == "here":
        return HERE
    return ("gate", "touched", "warmed", "small")


def row_of(
    exercise: str, way: str, calls: int, heard: Sequence[Heard], clocks: Clocks
) -> dict[str, Any]:
    """Return what is stored and printed of one way."""
    speed = BY_NAME[exercise].speed
    assert speed is not None
    ms = [1e3 * one.learner / calls for one in heard]
    peers = [1e3 * (one.before + one.after) / 2 / calls for one in heard]
    events = [1e3 * one.events / calls for one in heard if one.events is not None]
    median = statistics.median(ms)
    moved = speed.bytes_moved(speed.case)
    row: dict[str, Any] = {
        "exercise": exercise,
        "way": way,
        "calls": calls,
        "rounds": len(heard),
        "ms": median,
        "low_ms": min(ms),
        "high_ms": max(ms),
        "events_ms": statistics.median(events) if events else None,
        "peer_ms": statistics.median(peers),
        "gbps": moved / median / 1e6,
        "peer_gbps": moved / statistics.median(peers) / 1e6,
        "ratio": statistics.median(p / own for p, own in zip(peers, ms, strict=True)),
        "ratios": [p / own for p, own in zip(peers, ms, strict=True)],
    }
    if speed.flops is not None:
        row["tflops"] = speed.flops(speed.case) / median / 1e9
    for name in ("sm_mhz", "memory_mhz", "watts"):
        for whose in ("own", "beside"):
            spans = [getattr(one, whose) for one in heard]
            found = [clocks.median(span, name) for span in spans]
            each = [value for value in found if value is not None]
            row[f"{name}_{whose}"] = statistics.median(each) if each else None
            row[f"{name}_{whose}_each"] = found
    return row


HEAD = (
    f"{'exercise':<10} {'way':<11} {'calls':>5} {'ms':>9} {'events':>9} {'GB/s':>7} "
    f"{'peer':>7} {'ratio':>7} {'MHz':>6} {'peer':>6} {'W':>5} {'peer':>5}"
)


def line(row: Mapping[str, Any]) -> str:
    """Return a row as it is printed."""

    def shown(value: float | None, form: str) -> str:
        width = int(form.split(".")[0])
        return format(value, form) if value is not None else "-".rjust(width)

    return (
        f"{row['exercise']:<10} {row['way']:<11} {row['calls']:>5} "
        f"{shown(row['ms'], '9.4f')} {shown(row['events_ms'], '9.4f')} "
        f"{shown(row['gbps'], '7.0f')} {shown(row['peer_gbps'], '7.0f')} "
        f"{shown(row['ratio'], '7.3f')} {shown(row['sm_mhz_own'], '6.0f')} "
        f"{shown(row['sm_mhz_beside'], '6.0f')} {shown(row['watts_own'], '5.0f')} "
        f"{shown(row['watts_beside'], '5.0f')}"
    )


# --- the processes that measure -----------------------------------------------------


def in_court(until: float) -> None:
    """Hold the gate's hearings, and tell a row for each way."""
    from autograder.workers import ForkServer

    server = ForkServer(interpret=False, device="cuda")
    server.start()
    try:
        for name in BY_NAME:
            ways = ways_of("court", name)
            many = tuple(way for way in ways if way != "small")
            for some in (many, tuple(way for way in ways if way == "small")):
                if some and time.time() < until:
                    with told_of(f"{name}: court"):
                        one_court(server, name, some, until)
    finally:
        server.close()


def one_court(server: ForkServer, name: str, ways: Sequence[str], until: float) -> None:
    """Open a court for an exercise and run its rounds in some ways."""
    tell(begin=f"{name}: court", limit=LIMIT_S)
    part = SMALL_BYTES / torch.cuda.mem_get_info()[0] if "small" in ways else None
    with (
        Clocks().running() as clocks,
        _gate_court.opened(BY_NAME[name], server, part) as court,
    ):
        calls = court.setting["calls"]
        for way in ways:
            if time.time() > until:
                return
            tell(begin=f"{name}: {way}", limit=LIMIT_S)
            heard = list(_gate_court.rounds_of(court, way, ROUNDS))
            tell(row=row_of(name, way, calls, heard, clocks), limit=LIMIT_S)


def in_one_process(until: float) -> None:
    """Run the gate's turns here, and tell a row for each way."""
    for name, exercise in BY_NAME.items():
        if time.time() > until:
            return
        tell(begin=f"{name}: stand", limit=LIMIT_S)
        with told_of(f"{name}: here"), Clocks().running() as clocks:
            here = _gate_here.Here.of(exercise)
            for way in ways_of("here", name):
                tell(begin=f"{name}: {way}", limit=LIMIT_S)
                turns = (
                    _gate_here.as_benchmarked(here, ROUNDS)
                    if way == "bench"
                    else _gate_here.rounds_here(here, way, ROUNDS)
                )
                row = row_of(name, way, here.stand.calls, list(turns), clocks)
                tell(row=row, limit=LIMIT_S)
            here.close()


@contextlib.contextmanager
def told_of(what: str) -> Iterator[None]:
    """Tell what went wrong with one exercise, and go on with the next."""
    try:
        yield
    except Exception as problem:  # a ruling, no room, a driver that refuses
        tell(trouble=f"{what}: {type(problem).__name__}: {problem}", limit=LIMIT_S)


def command_for(part: str, until: float) -> list[str]:
    """Return the process that measures a part until a time of day."""
    told = ["--part", part, "--until", str(until)]
    return [sys.executable, "-m", "benchmarks._gate_steadiness", *told]


# --- the process that is asked ------------------------------------------------------

Command = Callable[[str, float], Sequence[str]]


def measure(seconds: float, command: Command = command_for) -> dict[str, Any]:
    """Run all parts, each in its process and its time; return what is stored."""
    began = time.monotonic()
    rows: list[dict[str, Any]] = []
    troubles: list[str] = []
    last = [""]

    def blame(words: str) -> None:
        troubles.append(words)
        print(f"TROUBLE {words}", flush=True)

    def hear(message: Message) -> None:
        last[0] = str(message.get("begin", last[0]))
        if "trouble" in message:
            blame(message["trouble"])
        if "row" in message:
            rows.append(message["row"])
            print(line(message["row"]), flush=True)

    print(HEAD, flush=True)
    for part, share in PARTS:
        end = began + share * seconds
        until = time.time() + end - time.monotonic() - 4
        ended, said = watch(command(part, until), hear, end, start_s=LIMIT_S)
        if ended in ("died", "silent"):
            how = "gave no answer" if ended == "silent" else "ended"
            blame(f"{part} {how} at {last[0] or 'its start'}: {said[-1500:]}")
    known = {(row["exercise"], row["way"]) for row in rows}
    wanted = [
        (name, way)
        for part, _ in PARTS
        for name in BY_NAME
        for way in ways_of(part, name)
    ]
    return {
        "stem": "gate_steadiness",
        "date": datetime.date.today().isoformat(),
        "ways": TITLES,
        "rows": rows,
        "troubles": troubles,
        "left_out": [f"{name}: {way}" for name, way in wanted
                     if (name, way) not in known],
        "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip


def main() -> int:
    """Measure, print, store; return 1 if a part ended badly or nothing was measured."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=90)
    parser.add_argument("--part", choices=dict(PARTS), help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, help=argparse.SUPPRESS)
    parser.add_argument(
        "--out", type=Path, default=Path(os.environ.get("OUT", "grades/gpu"))
    )
    options = parser.parse_args()
    if options.part:
        be_watched()
        measured = {"here": in_one_process, "court": in_court}[options.part]
        measured(options.until)
        return 0
    if not torch.cuda.is_available():
        print("no NVIDIA GPU: nothing was timed, nothing stored")
        return 0
    return report(measure(options.seconds), options.out)


def report(record: Mapping[str, Any], out: Path) -> int:
    """Print what the ways mean and what is missing, and store the record."""
    for way, title in TITLES.items():
        print(f"{way:<11} {title}")
    if record["left_out"]:
        print(f"left out: {', '.join(record['left_out'])}")
    out.mkdir(parents=True, exist_ok=True)
    path = out / "gate_steadiness.json"
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(f"stored in {path}, after {record['seconds']} s")
    return 1 if record["troubles"] or not record["rows"] else 0


if __name__ == "__main__":
    sys.exit(main())
