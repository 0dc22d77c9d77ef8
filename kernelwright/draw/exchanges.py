"""A warp's shuffles, recorded from the reader's own kernel or made from values.

The kernel is compiled for the emulator with wrappers around the four shuffles, which
write down what each lane of one warp gave and got.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass

import torch

from kernelwright.cuda import Launcher, compile
from kernelwright.errors import ArgumentError

KINDS = ("idx", "up", "down", "xor")
_NAMES = {"idx": "__shfl_sync", **{k: f"__shfl_{k}_sync" for k in KINDS[1:]}}
_MARK = "\x02kw-shuffle"
_SAID = re.compile(rf"{_MARK} (\d+) (\d+) (\d+) (-?\d+) (\d+) (\S+) (\S+)\n")

_PRELUDE = """
template <class T> __device__ double kw_number(T v) { return (double)(float)v; }
__device__ inline double kw_number(double v) { return v; }
__device__ inline double kw_number(int v) { return v; }
__device__ inline double kw_number(unsigned v) { return v; }
__device__ inline double kw_number(long v) { return (double)v; }
__device__ inline double kw_number(unsigned long v) { return (double)v; }
__device__ inline double kw_number(long long v) { return (double)v; }
__device__ inline double kw_number(unsigned long long v) { return (double)v; }
__device__ inline void kw_say(int line, int kind, int by, int width, double gave,
                              double got) {
    int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    long long block = blockIdx.x +
        (long long)gridDim.x * (blockIdx.y + (long long)gridDim.y * blockIdx.z);
    if (block == KW_BLOCK && thread / 32 == KW_WARP)
        printf("KW_MARK %d %d %d %d %d %.17g %.17g\\n", thread % 32, line, kind, by,
               width, gave, got);
}
"""
_WRAPPER = """
template <class T, class B>
__device__ T kw_KIND(int line, unsigned mask, T v, B by, int width = 32) {
    T got = NAME(mask, v, by, width);
    kw_say(line, NUMBER, (int)by, width, kw_number(v), kw_number(got));
    return got;
}
#define NAME(...) kw_KIND(__LINE__, __VA_ARGS__)
"""


@dataclass(frozen=True)
class Exchange:
    """What one lane did in one shuffle.

    Args:
        source: the lane that it got its value from.
        gave: its own value.
        got: the value that it got.
    """

    source: int
    gave: float
    got: float


@dataclass(frozen=True)
class Shuffle:
    """One shuffle of a warp.

    Args:
        line: of the source; 0 where there is none.
        kind: ``idx``, ``up``, ``down`` or ``xor``.
        by: the lane or the distance, where all lanes named the same; else None.
        lanes: what each active lane did.
    """

    line: int
    kind: str
    by: int | None
    lanes: dict[int, Exchange]

    @property
    def name(self) -> str:
        """Its name in CUDA."""
        return _NAMES[self.kind]


def record_shuffles(
    launcher: Launcher, arguments: Sequence[object], *, block: int, warp: int
) -> list[Shuffle]:
    """Run a launch on the emulator, on copies, and return one warp's shuffles in order.

    Args:
        launcher: ``kernel[grid, block]``.
        arguments: as for the launch; tensors are copied, none is changed.
        block: number of the block, x fastest.
        warp: number of the warp in it.

    Raises:
        ArgumentError: the launch has no such block or warp.
    """
    x, y, z = launcher.grid
    bx, by, bz = launcher.block
    blocks, warps = x * y * z, -(-bx * by * bz // 32)
    if not (0 <= block < blocks and 0 <= warp < warps):
        raise ArgumentError(
            f"block {block}, warp {warp}: the launch has blocks 0 to {blocks - 1} of "
            f"warps 0 to {warps - 1}."
        )
    kernel = launcher.kernel
    prelude = _prelude(block, warp)
    watched = compile(prelude + kernel.source, backend="emulator")[kernel.name]
    given = [a.cpu().clone() if isinstance(a, torch.Tensor) else a for a in arguments]
    said = io.StringIO()
    with redirect_stdout(said):
        watched[launcher.grid, launcher.block, launcher.shared](*given)
    return _gathered(said.getvalue(), prelude.count("\n"))


def make_shuffles(
    values: Sequence[float],
    offsets: Sequence[int],
    kind: str,
    combine: Callable[[float, float], float],
) -> list[Shuffle]:
    """Carry out ``v = combine(v, shuffle(v, offset))`` for each offset on a warp.

    Args:
        values: of up to 32 lanes.
        offsets: distances, or lanes for ``idx``, one after another.
        kind: ``idx``, ``up``, ``down`` or ``xor``.
        combine: what a lane makes of its own value and the one that it got.

    Raises:
        ArgumentError: more than 32 values, none, or an unknown kind.
    """
    if kind not in KINDS:
        raise ArgumentError(f"kind is {kind!r}; wanted one of {', '.join(KINDS)}.")
    if not 0 < len(values) <= 32:
        raise ArgumentError(f"a warp has 32 lanes; got {len(values)} values.")
    now, made = [float(v) for v in values], []
    for offset in offsets:
        lanes = {}
        for lane, value in enumerate(now):
            source = source_of(kind, lane, offset, 32)
            source = source if source < len(now) else lane
            lanes[lane] = Exchange(source, value, now[source])
        made.append(Shuffle(0, kind, offset, lanes))
        now = [combine(e.gave, e.got) for e in lanes.values()]
    return made


def source_of(kind: str, lane: int, by: int, width: int) -> int:
    """Return the lane that a shuffle reads, as the CUDA C++ guide defines it."""
    first = lane & ~(width - 1)
    if kind == "idx":
        return first | (by & (width - 1))
    found = {"up": lane - by, "down": lane + by, "xor": lane ^ by}[kind]
    outside = found < first if kind == "up" else found > first + width - 1
    return lane if outside else found


def _prelude(block: int, warp: int) -> str:
    text = _PRELUDE.replace("KW_BLOCK", str(block)).replace("KW_WARP", str(warp))
    for number, kind in enumerate(KINDS):
        wrapper = _WRAPPER.replace("NAME", _NAMES[kind]).replace("KIND", kind)
        text += wrapper.replace("NUMBER", str(number))
    return text.replace("KW_MARK", "\\002kw-shuffle")


def _gathered(said: str, above: int) -> list[Shuffle]:
    """Put the lanes' lines together: the same shuffle, the same turn."""
    turns: Counter[tuple[int, int, int]] = Counter()
    places: Counter[int] = Counter()
    lanes: dict[tuple[int, int, int], dict[int, tuple[int, Exchange]]] = {}
    earliest: dict[tuple[int, int, int], int] = {}
    for match in _SAID.finditer(said):
        lane, line, kind, by, width = (int(part) for part in match.groups()[:5])
        source = source_of(KINDS[kind], lane, by, width)
        exchange = Exchange(source, float(match[6]), float(match[7]))
        key = (line - above, kind, turns[lane, line, kind])
        turns[lane, line, kind] += 1
        lanes.setdefault(key, {})[lane] = (by, exchange)
        earliest[key] = min(earliest.get(key, places[lane]), places[lane])
        places[lane] += 1
    found = []
    for key in sorted(lanes, key=lambda key: (earliest[key], key)):
        taking = dict(sorted(lanes[key].items()))
        named = {by for by, _ in taking.values()}
        found.append(
            Shuffle(
                key[0],
                KINDS[key[1]],
                named.pop() if len(named) == 1 else None,
                {lane: exchange for lane, (_, exchange) in taking.items()},
            )
        )
    return found
