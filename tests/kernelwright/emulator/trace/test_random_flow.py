"""Random structured kernels against a model of how a GPU runs a warp.

The model keeps a set of active lanes, as the hardware does: both sides of a branch one
after the other, a loop until its last lane has left, lanes that break or continue
waiting where the others come to. The trace has only the lanes' own steps and must
find the same requests.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from kernelwright.emulator.toolchain import find_compiler

ELEMENTS = 4096
THREADS, BLOCKS = 64, 2
WORD = 0xFFFFFFFF
MIX, SPREAD = 1664525, 2654435761


@dataclass(frozen=True)
class Load:
    """Mixes an element, chosen by the state, into the state."""

    number: int


@dataclass(frozen=True)
class Jump:
    """``break`` or ``continue``."""

    word: str


@dataclass(frozen=True)
class If:
    """Takes lanes by some bits of their state."""

    shift: int
    modulus: int
    below: int
    then: list
    other: list


@dataclass(frozen=True)
class Loop:
    """Runs as often as some bits of the state say when it begins."""

    number: int
    shift: int
    modulus: int
    body: list


@dataclass(frozen=True)
class Spin:
    """Computes until some bits of the state are 0: no memory, and rounds as may be."""

    number: int
    shift: int
    modulus: int

    def goes_on(self, state: int) -> bool:
        return (state >> self.shift) % self.modulus != 0


Statement = Load | Jump | If | Loop | Spin


class Author:
    """Writes random programs.

    Args:
        seed: the same program for the same.
        computing: with loops that touch no memory, and loops that seldom do.
    """

    def __init__(self, seed: int, computing: bool = False) -> None:
        self.random = random.Random(seed)
        self.computing = computing
        self.count = 0

    def number(self) -> int:
        self.count += 1
        return self.count

    def block(self, depth: int, in_loop: bool) -> list[Statement]:
        return [
            self.statement(depth, in_loop) for _ in range(self.random.randint(1, 3))
        ]

    def computation(self, depth: int) -> Statement:
        shift, modulus = self.random.randrange(8), self.random.choice([3, 5, 11])
        spin = Spin(self.number(), shift, modulus)
        if depth == 0 or self.random.random() < 0.4:
            return spin
        seldom = If(shift + 3, 37, 1, [Load(self.number())], [])
        body = self.random.choice([[spin, seldom], [seldom, spin], [spin], [seldom]])
        return Loop(self.number(), shift, modulus, body)

    def statement(self, depth: int, in_loop: bool) -> Statement:
        if self.computing and self.random.random() < 0.4:
            return self.computation(depth)
        draw = self.random.random()
        shift, modulus = self.random.randrange(8), self.random.choice([3, 5, 7, 11])
        if depth == 0 or draw < 0.45:
            return Load(self.number())
        if draw < 0.7:
            other = self.block(depth - 1, in_loop) if draw < 0.58 else []
            then = self.block(depth - 1, in_loop)
            return If(shift, modulus, self.random.randint(1, 2), then, other)
        if draw < 0.88 or not in_loop:
            return Loop(self.number(), shift, modulus, self.block(depth - 1, True))
        jump = Jump("break" if draw < 0.94 else "continue")
        return If(shift, modulus, 1, [Load(self.number()), jump], [])


def as_source(program: list[Statement]) -> str:
    lines = [
        "__global__ void k(const unsigned* x, unsigned* out) {",
        f"unsigned i = blockIdx.x * {THREADS} + threadIdx.x, s = i * {SPREAD}u;",
        *written(program),
        "out[i] = s;",
        "}",
    ]
    return "\n".join(lines)


def written(program: list[Statement]) -> Iterable[str]:
    for part in program:
        if isinstance(part, Load):
            index = f"({part.number * 977}u + s) % {ELEMENTS}u"
            yield f"s = s * {MIX}u + x[{index}];"
        elif isinstance(part, Jump):
            yield f"{part.word};"
        elif isinstance(part, If):
            yield f"if ((s >> {part.shift}) % {part.modulus}u < {part.below}u) {{"
            yield from written(part.then)
            if part.other:
                yield "} else {"
                yield from written(part.other)
            yield "}"
        elif isinstance(part, Spin):
            yield f"while ((s >> {part.shift}) % {part.modulus}u)"
            yield f"    s = s * {MIX}u + {part.number}u;"
        else:
            k, end = f"k{part.number}", f"(s >> {part.shift}) % {part.modulus}u"
            yield "#pragma unroll 1"
            yield f"for (unsigned {k} = 0, end = {end}; {k} < end; ++{k}) {{"
            yield from written(part.body)
            yield "}"


@dataclass
class Warp:
    """Runs a program for 32 lanes and counts what it asks of memory."""

    x: list[int]
    state: dict[int, int]
    requests: int = 0
    sectors: int = 0
    loads: int = 0
    broke: set[int] = field(default_factory=set)
    continued: set[int] = field(default_factory=set)

    def run(self, program: list[Statement], lanes: set[int]) -> set[int]:
        """Run a block; return the lanes that come to its end."""
        for part in program:
            if not lanes:
                break
            if isinstance(part, Load):
                self.load(part, lanes)
            elif isinstance(part, Jump):
                left = self.broke if part.word == "break" else self.continued
                left |= lanes
                lanes = set()
            elif isinstance(part, If):
                taken = {
                    lane
                    for lane in lanes
                    if (self.state[lane] >> part.shift) % part.modulus < part.below
                }
                lanes = self.run(part.then, taken) | self.run(part.other, lanes - taken)
            elif isinstance(part, Spin):
                for lane in lanes:
                    while part.goes_on(self.state[lane]):
                        self.state[lane] = (self.state[lane] * MIX + part.number) & WORD
            else:
                lanes = self.loop(part, lanes)
        return lanes

    def load(self, part: Load, lanes: set[int]) -> None:
        at = {lane: (part.number * 977 + self.state[lane]) % ELEMENTS for lane in lanes}
        self.requests += 1
        self.loads += len(lanes)
        self.sectors += len({index // 8 for index in at.values()})
        for lane, index in at.items():
            self.state[lane] = (self.state[lane] * MIX + self.x[index]) & WORD

    def loop(self, part: Loop, lanes: set[int]) -> set[int]:
        outer = self.broke, self.continued
        ends = {n: (self.state[n] >> part.shift) % part.modulus for n in lanes}
        inside, k = {n for n in lanes if ends[n]}, 0
        while inside:
            self.broke, self.continued = set(), set()
            inside = self.run(part.body, inside) | self.continued
            k += 1
            inside = {n for n in inside if k < ends[n]}
        self.broke, self.continued = outer
        return lanes


# In the last two a loop's ways out also meet again around the loop that it stands in.
@pytest.mark.parametrize("seed", [*range(17), 89, 122])
def test_a_random_kernel_makes_the_requests_of_a_gpus_warps(trace, seed):
    compare(trace, seed, [*Author(seed).block(3, False), Load(1000)])


# In the later ones some lane is the first to read in a loop that had only computed, or
# the compiler writes a first round out in front of a loop, with one way out for both.
COMPUTING = [*range(5), 33, 52, 241, 250, 254, 263, 12, 20, 60, 116, 154, 155, 178]


@pytest.mark.parametrize("seed", COMPUTING)
def test_loops_that_only_compute_change_no_request(trace, seed):
    compare(trace, seed, [*Author(seed, computing=True).block(3, False), Load(1000)])


def compare(trace, seed, program):
    x = np.random.default_rng(seed).integers(0, 2**31, ELEMENTS).astype(np.int32)
    out = torch.zeros(BLOCKS * THREADS, dtype=torch.int32)
    report = trace(as_source(program), "k", BLOCKS, THREADS, torch.from_numpy(x), out)
    warps = []
    for first in range(0, BLOCKS * THREADS, 32):
        state = {i: (i * SPREAD) & WORD for i in range(first, first + 32)}
        warps.append(Warp(x.tolist(), state))
        warps[-1].run(program, set(state))
    expected = [value for warp in warps for value in warp.state.values()]
    assert [value & WORD for value in out.tolist()] == expected
    report.assert_clean()
    found = report.global_load
    assert found.bytes == 4 * sum(warp.loads for warp in warps)
    if find_compiler().is_clang:
        return  # it joins two branches' loads into one behind them, as nvcc may
    assert found.requests == sum(warp.requests for warp in warps)
    assert found.sectors == sum(warp.sectors for warp in warps)
