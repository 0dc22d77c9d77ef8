"""Time what softmax's launch fixes by hand: ``python -m benchmarks._tune_softmax``.

    --seconds 150   for all of it; what does not fit is named as left out
    --out FOLDER    for tune_softmax.json; $OUT, or grades/gpu, when absent
    --only TEXT     groups whose name holds this, such as "forward bfloat16"

For each shape, dtype and way: pieces of 4096 to 32768 numbers by 8 to 32 warps,
together in one launch or launch by launch, and whole rows by 4 to 32 warps. Each is
right first, against float64, then timed beside today's setting, a copy of as many
bytes, ``torch.softmax`` and ``torch.compile`` in the same rounds. All of it runs in
processes of their own: a setting that is wrong, fails or hangs is named, and the rest
goes on. ``MOST_TOGETHER`` shows where rows of 64 and 128 pieces are compared together
and launch by launch; ``REGISTERS`` where whole rows are compared with pieces.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchmarks._candidates import median_ratio
from benchmarks._tune_group import COMPILED, COPY, EAGER, Group, planned
from benchmarks._tune_settings import TODAY, Way
from benchmarks._tune_watch import Message, end_in_order, watch

FIRST = ((16384, 8192), (4096, 65_536), (1024, 262_144))
THEN = ((32768, 1024), (2048, 131_072))
THRESHOLD = ((8192, 32_768),)
"""Rows as long as one program has them whole today: ``REGISTERS``."""

LONG = ((512, 524_288), (256, 1_048_576))
"""Rows of 64 and 128 pieces of today's size: ``MOST_TOGETHER``."""

ROUNDS = 3
COMPILE_SHARE = 0.25
"""Of the seconds, at most, for compiling beforehand."""

MOST_PROCESSES = 12
MOST_RESTARTS = 6
PEERS = (COPY, EAGER, COMPILED)


def groups() -> list[Group]:
    """Name what is compared, what decides most first."""
    parts: tuple[tuple[Sequence[tuple[int, int]], Way, bool], ...] = (
        (FIRST, "forward", True),
        (FIRST, "backward", True),
        (THEN, "forward", True),
        (THRESHOLD, "forward", False),
        (LONG, "forward", False),
        (THEN, "backward", False),
    )
    return [
        Group(*shape, dtype, way, peers)
        for dtype in ("bfloat16", "float32")
        for shapes, way, peers in parts
        for shape in shapes
    ]


@dataclass
class Log:
    """What was heard so far.

    Args:
        machine: the device's name and the versions.
        rows: by group, what each setting's or peer's times came to.
        wrong: settings that were wrong, failed or hung: group, name and why.
        done: groups that ended.
        errors: by group and setting, the error in eps.
        last: what was begun last: group and name.
    """

    machine: Message = field(default_factory=dict)
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    wrong: list[dict[str, str]] = field(default_factory=list)
    done: set[str] = field(default_factory=set)
    errors: dict[tuple[str, str], float] = field(default_factory=dict)
    last: tuple[str, str] = ("", "")

    def hear(self, message: Message) -> None:
        """Take in one message of the process that measures."""
        group = str(message.get("group", ""))
        if "device" in message:
            self.machine = {k: message[k] for k in ("device", "versions")}
        if "begin" in message:
            self.last = (group, message["begin"])
        if "right" in message:
            self.errors[group, message["right"]] = message["eps"]
        if "wrong" in message:
            self.blame(group, message["wrong"], message["why"])
        if "times" in message:
            self.rows[group] = rows_of(message["times"], message["bytes"])
        if "done" in message:
            self.done.add(group)
            self.show(group)

    def blame(self, group: str, name: str, why: str) -> None:
        """Note that a setting was wrong."""
        self.wrong.append({"group": group, "name": name, "why": why})
        print(f"WRONG  {group}: {name}: {why}", flush=True)

    def show(self, group: str) -> None:
        """Print a group's fastest settings, today's and the peers."""
        rows = self.rows[group]
        ours = [row for row in rows if row["name"] not in PEERS]
        best = sorted(ours, key=lambda row: -float(row["to_today"]))[:4]
        today = [row for row in ours if row["name"].startswith(TODAY)]
        shown = [row for row in rows if row["name"] in PEERS] + best
        shown += [row for row in today if row not in best]
        print(f"== {group}")
        for row in shown:
            print(line(row), flush=True)


def rows_of(times: Mapping[str, list[float]], moved: int) -> list[dict[str, Any]]:
    """Return a row for each that was timed: ratios are of the same round."""
    today = next((ms for name, ms in times.items() if name.startswith(TODAY)), None)
    rows = []
    for name, ms in times.items():
        median = statistics.median(ms)
        row: dict[str, Any] = {
            "name": name,
            "median_ms": median,
            "low_ms": min(ms),
            "high_ms": max(ms),
            "gbps": moved / median / 1e6,
            "of_copy": median_ratio(times[COPY], ms),
        }
        # Where today's own setting hung or is wrong, a copy takes its place.
        row["to_today"] = median_ratio(today or times[COPY], ms)
        rows.append(row)
    return rows


def line(row: Mapping[str, Any]) -> str:
    """Return a row as it is printed."""
    return (
        f"  {row['name']:<52} {row['median_ms']:8.4f} ms {row['gbps']:7.0f} GB/s "
        f"{row['of_copy']:6.1%} of copy {row['to_today']:6.3f} x today"
    )


def best_of(log: Log, group: str) -> dict[str, Any] | None:
    """Return a group's fastest setting beside today's and the better peer."""
    rows = {row["name"]: row for row in log.rows.get(group, ())}
    ours = [row for name, row in rows.items() if name not in PEERS]
    if not ours:
        return None
    best = max(ours, key=lambda row: float(row["to_today"]))
    today = next((r for r in ours if r["name"].startswith(TODAY)), None)
    peers = [rows[name]["median_ms"] for name in (EAGER, COMPILED) if name in rows]
    return {
        "group": group,
        "best": best["name"],
        "to_today": best["to_today"],
        "of_copy": best["of_copy"],
        "today_of_copy": today["of_copy"] if today else None,
        "of_peer": min(peers) / best["median_ms"] if peers else None,
        "today_of_peer": min(peers) / today["median_ms"] if peers and today else None,
    }


Command = Callable[[Mapping[str, Any]], Sequence[str]]


def measure(
    todo: Sequence[Group], log: Log, command: Command, until: float, rounds: int
) -> None:
    """Have all groups measured; what hangs or dies is named, and left out from then.

    Args:
        todo: the groups, in order.
        log: takes everything in.
        command: the process for a plan.
        until: monotonic time of the end.
        rounds: of each group.
    """
    skip: list[tuple[str, str]] = []
    for _ in range(1 + MOST_RESTARTS):
        left = [group.to_json() for group in todo if group.name not in log.done]
        now = time.monotonic()
        if not left or now >= until:
            return
        log.last = ("", "")
        plan = {
            "groups": left,
            "skip": skip,
            "rounds": rounds,
            # A group takes some seconds: none is begun that would be cut short.
            "until": time.time() + max(0.0, until - now - 9),
        }
        ended, said = watch(command(plan), log.hear, until)
        if ended in ("done", "late"):
            return
        group, name = log.last
        what = "hangs" if ended == "silent" else "ended the process"
        known = {(one["group"], one["name"]) for one in log.wrong}
        if (group, name) not in known:
            log.blame(group or "the process", name or "start", what)
        print(said[-1500:], flush=True)
        # A peer or the inputs cannot be left out: the group is.
        if not group or name in (*PEERS, "inputs"):
            if not group:
                return
            log.done.add(group)
        skip.append((group, name))


def compile_all(todo: Sequence[Group], command: Command, until: float) -> int:
    """Compile all settings in several processes; return how many came to the end."""
    count = min(MOST_PROCESSES, max(1, (os.cpu_count() or 2) - 2))
    plans = [
        {"groups": [group.to_json() for group in todo], "share": share, "of": count}
        for share in range(count)
    ]
    with ThreadPoolExecutor(count) as pool:
        ended = pool.map(
            lambda plan: watch(command(plan), lambda _: None, until)[0], plans
        )
        return sum(one == "done" for one in ended)


def command_for(plan: Mapping[str, Any]) -> list[str]:
    """Return the process that does what a plan says."""
    return [sys.executable, "-m", "benchmarks._tune_group", json.dumps(plan)]


def summary(log: Log, todo: Sequence[Group]) -> dict[str, Any]:
    """Print the table of the best, and what is missing; return what is stored."""
    found = [one for group in todo if (one := best_of(log, group.name))]
    print("== best setting of each group, as a ratio to today's")
    for one in found:
        peer = f"{one['of_peer']:5.2f} of peer" if one["of_peer"] else ""
        print(
            f"{one['group']:<34} {one['to_today']:6.3f} x today "
            f"{one['of_copy']:6.1%} of copy {peer}  {one['best']}"
        )
    for bad in log.wrong:
        print(f"WRONG {bad['group']}: {bad['name']}: {bad['why']}")
    left_out = [group.name for group in todo if group.name not in log.rows]
    if left_out:
        print(f"left out, no time: {', '.join(left_out)}")
    rows = {
        name: [row | {"eps": log.errors.get((name, row["name"]))} for row in rows]
        for name, rows in log.rows.items()
    }
    return {
        "stem": "tune_softmax",
        "date": datetime.date.today().isoformat(),
        **log.machine,
        "best": found,
        "wrong": log.wrong,
        "left_out": left_out,
        "groups": rows,
    }


def main() -> int:
    """Tune, print, store; return 1 if any setting was wrong or nothing was timed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=150)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", default="")
    parser.add_argument(
        "--out", type=Path, default=Path(os.environ.get("OUT", "grades/gpu"))
    )
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("no NVIDIA GPU: nothing was timed, nothing stored")
        return 0
    end_in_order()
    return tune(options, [g for g in groups() if options.only in g.name], command_for)


def tune(options: argparse.Namespace, todo: Sequence[Group], command: Command) -> int:
    """Compile, measure, and store what came of it, whatever happens on the way."""
    began = time.monotonic()
    until = began + options.seconds
    settings = sum(len(named) for _, named in planned([g.to_json() for g in todo], ()))
    log = Log()
    try:
        ended = compile_all(todo, command, began + COMPILE_SHARE * options.seconds)
        print(
            f"{len(todo)} groups, {settings} settings; compiling: {ended} processes "
            f"came to the end in {time.monotonic() - began:.0f} s",
            flush=True,
        )
        measure(todo, log, command, until - 3, options.rounds)
    finally:
        record = summary(log, todo)
        record["seconds"] = round(time.monotonic() - began, 1)
        options.out.mkdir(parents=True, exist_ok=True)
        path = options.out / "tune_softmax.json"
        path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        print(f"stored in {path}, after {record['seconds']} s")
    return 1 if log.wrong or not log.rows else 0


if __name__ == "__main__":
    sys.exit(main())
