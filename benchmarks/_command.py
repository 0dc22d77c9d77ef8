"""A benchmark's command line: what is right first, then measured, stored, judged."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks._candidates import Row
from benchmarks._store import OUT, said_of, slug, store

Floors = Mapping[str, Mapping[str, float]]
"""By device and by row: the lowest figure that is no regression."""

Measured = Iterable[tuple[Sequence[Row], Mapping[str, Any]]]
"""Rows, and what is stored beside them; where there are more than one, all so far."""


def command_line(about: str | None) -> argparse.ArgumentParser:
    """Return what every benchmark understands."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check", action="store_true", help="hold each figure against its floor"
    )
    part = parser.add_mutually_exclusive_group()
    part.add_argument(
        "--only-correct", action="store_true", help="time nothing; needs no GPU"
    )
    part.add_argument(
        "--only-time", action="store_true", help="check no values: they are known right"
    )
    parser.add_argument("--out", type=Path, default=OUT, help="folder for the results")
    return parser


def run(
    stem: str,
    options: argparse.Namespace,
    check_values: Callable[[str], object],
    measured: Callable[[argparse.Namespace], Measured],
    floors: Floors,
    key: str = "ratio",
) -> int:
    """Check, measure, store; return 0 if all is right and above its floor.

    Args:
        stem: the chapter's; the results are named by it and by the device.
        options: what ``command_line`` read.
        check_values: raises where a value on ``cuda`` or ``cpu`` is wrong.
        measured: yields what is to be stored. What it yields last stands; what it
            yields before is stored too, so that a run cut short leaves something.
            Nothing is stored or judged where it yields nothing.
        floors: by device.
        key: the figure of a row that they are for.
    """
    on_gpu = torch.cuda.is_available()
    if not options.only_time:
        check_values("cuda" if on_gpu else "cpu")
    if options.only_correct:
        return 0
    if not on_gpu:
        print("no NVIDIA GPU: nothing was timed, nothing stored")
        return 0
    path: Path | None = None
    rows: Sequence[Row] = ()
    for rows, facts in measured(options):
        path = store(stem, rows, options.out, **facts)
    if path is None:
        return 0
    print(said_of(path))
    return judge(rows, floors, key) if options.check else 0


def judge(rows: Sequence[Row], floors: Floors, key: str) -> int:
    """Print which rows are below this device's floors; return 1 if any is."""
    known = floors.get(slug(torch.cuda.get_device_name()))
    if known is None:
        print("no floors are known for this device")
        return 0
    low = below_floor(rows, known, key)
    print("\n".join(low) or "all figures are above their floors")
    return 1 if low else 0


def below_floor(
    rows: Sequence[Row], floors: Mapping[str, float], key: str = "ratio"
) -> list[str]:
    """Say which rows are slower than they once were; a row that is missing is one."""
    measured = {row["name"]: row[key] for row in rows if key in row}
    return [
        f"{name}: {key} {measured.get(name, 'not measured')}, floor {floor}"
        for name, floor in floors.items()
        if measured.get(name, 0.0) < floor
    ]
