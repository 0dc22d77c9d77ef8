"""The process that checks and times softmax's settings, for ``_tune_softmax``.

It is told what to do as JSON, a group of settings a shape, dtype and way, and prints
messages (``_tune_watch``): what it begins, what was wrong, and each group's times. With
``compile`` it compiles its share of the settings alone, many processes at once, into
Triton's cache on disk, and times nothing.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from benchmarks import _peers, _tune_settings
from benchmarks._candidates import Candidate, time_in_turn
from benchmarks._tune_settings import ARRAYS, Setting, Way
from benchmarks._tune_watch import be_watched, tell

CHECK_S, COMPILE_S, TIME_S = 25.0, 60.0, 15.0
"""Seconds after which a check, torch.compile or the timing of one setting hangs."""

MOST_EPS = 16.0
"""Error of a right result, in eps of the largest: ``benchmarks.softmax`` allows 4, and
these rows are up to 25 times as long. What is left out or written twice is NaN or off
by thousands."""

SECONDS = 0.02
FEW_ROWS = 16  # for compiling: as divisible as the rows that are timed
COPY, EAGER, COMPILED = "copy", "torch.softmax", "torch.compile"

Tell = Callable[..., None]
Named = Mapping[str, Setting | None]


@dataclass(frozen=True)
class Group:
    """What is compared: one shape, dtype and way.

    Args:
        rows, columns: of x.
        dtype: of x, without torch's name.
        way: forward or backward.
        peers: whether torch's own is timed beside; a copy always is.
    """

    rows: int
    columns: int
    dtype: str
    way: Way
    peers: bool = True

    @property
    def name(self) -> str:
        """What messages and tables call it."""
        return f"{self.way} {self.dtype} {self.rows}x{self.columns}"

    @property
    def bytes_moved(self) -> int:
        """Bytes that must move: each input read and the output written, once."""
        kind = getattr(torch, self.dtype)
        return (1 + ARRAYS[self.way]) * self.rows * self.columns * int(kind.itemsize)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON types."""
        return asdict(self)


@dataclass(frozen=True)
class Given:
    """A group's tensors.

    Args:
        tensors: what a launch takes, the output last.
        right: the right output, in float64.
    """

    tensors: tuple[torch.Tensor, ...]
    right: torch.Tensor

    @property
    def out(self) -> torch.Tensor:
        """Where a launch writes."""
        return self.tensors[-1]


def draw(group: Group, device: str) -> Given:
    """Draw a group's tensors, and find the right output in float64."""
    kind = getattr(torch, group.dtype)
    shape = (group.rows, group.columns)
    x = torch.randn(shape, device=device).to(kind)
    if group.way == "forward":
        return Given((x, torch.empty_like(x)), torch.softmax(x.double(), 1))
    y = torch.softmax(x, 1)
    grad = torch.randn(shape, device=device).to(kind)
    v, g = y.double(), grad.double()
    right = v * (g - (v * g).sum(1, keepdim=True))
    return Given((y, grad, torch.empty_like(y)), right)


def run_group(
    group: Group,
    named: Named,
    *,
    rounds: int,
    device: str = "cuda",
    tell: Tell = tell,
    seconds: float = SECONDS,
) -> None:
    """Check each setting against float64, then time what is right, in turn."""
    global _turn
    _turn = ""
    told = {"group": group.name}
    tell(**told, begin="inputs", limit=CHECK_S)
    given = draw(group, device)
    right: dict[str, Setting | None] = {}
    for name, setting in named.items():
        tell(**told, begin=name, limit=CHECK_S)
        try:
            error = error_of(group, setting, given)
        except Exception as problem:  # whatever a setting does, the next one is tried
            tell(**told, wrong=name, why=_first_line(problem), limit=CHECK_S)
            _still_there(device)
            continue
        if error < MOST_EPS:
            right[name] = setting
            tell(**told, right=name, eps=error, limit=CHECK_S)
        else:
            why = f"off by {error:.3g} eps of the largest value"
            tell(**told, wrong=name, why=why, limit=CHECK_S)
    todo = [candidate(group, name, one, given, tell) for name, one in right.items()]
    peers = list(beside(group, given, tell, device))
    del given
    times = time_in_turn([*peers, *todo], rounds, seconds)
    tell(**told, times=times, bytes=group.bytes_moved, limit=CHECK_S)


def error_of(group: Group, setting: Setting | None, given: Given) -> float:
    """Return the largest error of an output that was NaN before, in eps."""
    given.out.fill_(torch.nan)
    _tune_settings.run(setting, group.way, *given.tensors)
    off = (given.out.double() - given.right).abs_().max()
    worst = float(off / given.right.abs().max()) / torch.finfo(given.out.dtype).eps
    return worst if worst == worst else float("inf")


def candidate(
    group: Group, name: str, setting: Setting | None, given: Given, tell: Tell
) -> Candidate:
    """Name a setting to be timed, which says so when its turn begins."""

    def launch(*tensors: torch.Tensor) -> None:
        begin(group, name, tell, TIME_S)
        _tune_settings.run(setting, group.way, *tensors)

    return Candidate(name, name, launch, given.tensors, group.bytes_moved, group.dtype)


_turn = ""


def begin(group: Group, name: str, tell: Tell, limit: float) -> None:
    """Say whose turn it is, where it was another's before."""
    global _turn
    if _turn != name:
        _turn = name
        tell(group=group.name, begin=name, limit=limit)


def beside(group: Group, given: Given, tell: Tell, device: str) -> Iterator[Candidate]:
    """Name a copy of as many bytes, and torch's own where it is asked for."""
    # Random, as what is copied beside it: zeros draw less power.
    half = torch.randint(
        0, 256, (group.bytes_moved // 2,), dtype=torch.uint8, device=device
    )
    yield _peer(
        group, COPY, torch.Tensor.copy_, (torch.empty_like(half), half), tell, TIME_S
    )
    if not group.peers:
        return
    inputs = given.tensors[:-1]
    eager = _softmax if group.way == "forward" else _slope
    yield _peer(group, EAGER, eager, inputs, tell, TIME_S)
    written = _softmax if group.way == "forward" else _slope_written_out
    made = _peers.compiled(written)
    tell(group=group.name, begin=COMPILED, limit=COMPILE_S)
    try:
        made(*inputs)
    except Exception as problem:
        tell(group=group.name, wrong=COMPILED, why=_first_line(problem), limit=CHECK_S)
        return
    yield _peer(group, COMPILED, made, inputs, tell, TIME_S)


def _peer(
    group: Group,
    name: str,
    function: Callable[..., object],
    arguments: tuple[torch.Tensor, ...],
    tell: Tell,
    limit: float,
) -> Candidate:
    def run(*given: torch.Tensor) -> object:
        begin(group, name, tell, limit)
        return function(*given)

    return Candidate(name, name, run, arguments, group.bytes_moved, group.dtype)


def _softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


def _slope(y: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
    """Call what torch's own backward pass calls."""
    out: torch.Tensor = torch.ops.aten._softmax_backward_data(grad, y, -1, y.dtype)
    return out


def _slope_written_out(y: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
    """Say what torch.compile makes its backward kernel of: sums in float32."""
    v, g = y.float(), grad.float()
    return (v * (g - (v * g).sum(-1, keepdim=True))).to(y.dtype)


def _first_line(problem: Exception) -> str:
    text = str(problem).strip().splitlines()
    return f"{type(problem).__name__}: {text[0] if text else ''}"[:200]


def _still_there(device: str) -> None:
    """End this process where an error has cost it the GPU; the watcher goes on."""
    if device != "cuda":
        return
    try:
        torch.cuda.synchronize()
    except Exception:
        sys.stdout.flush()
        os._exit(3)


# --- compiling beforehand -----------------------------------------------------------


def compile_share(todo: Sequence[tuple[Group, Named]], share: int, of: int) -> None:
    """Compile every ``of``-th setting, beginning with number ``share``."""
    every = [(group, one) for group, named in todo for one in named.values()]
    for number in range(share, len(every), of):
        group, setting = every[number]
        tell(compile=number, limit=COMPILE_S)
        few = Group(FEW_ROWS, group.columns, group.dtype, group.way)
        try:
            given = draw(few, "cuda")
            _tune_settings.run(setting, group.way, *given.tensors)
        except Exception as problem:  # the check of this setting will say it again
            tell(compile=number, why=_first_line(problem), limit=COMPILE_S)


# --- the process ----------------------------------------------------------------------


def planned(
    groups: Sequence[Mapping[str, Any]], skip: Sequence[Sequence[str]]
) -> list[tuple[Group, Named]]:
    """Return the groups with their settings, less those that are to be skipped."""
    leave = {tuple(one) for one in skip}
    found: list[tuple[Group, Named]] = []
    for data in groups:
        group = Group(**data)
        width = getattr(torch, group.dtype).itemsize
        named = _tune_settings.tried(group.columns, group.way, width)
        kept = {k: v for k, v in named.items() if (group.name, k) not in leave}
        found.append((group, kept))
    return found


def main() -> int:
    """Do what the one argument says."""
    be_watched()
    plan = json.loads(sys.argv[1])
    todo = planned(plan["groups"], plan.get("skip", ()))
    tell(begin="process", limit=COMPILE_S)
    if "share" in plan:
        compile_share(todo, plan["share"], plan["of"])
        sys.stdout.flush()
        os._exit(0)  # a kernel that hangs would be waited for
    from benchmarks._store import versions

    tell(device=torch.cuda.get_device_name(), versions=versions(), limit=COMPILE_S)
    for group, named in todo:
        if time.time() > plan["until"]:
            break
        began = time.time()
        run_group(group, named, rounds=plan["rounds"])
        torch.cuda.empty_cache()
        tell(group=group.name, done=round(time.time() - began, 1), limit=COMPILE_S)
    return 0


if __name__ == "__main__":
    sys.exit(main())
