"""What chapter 11's kernels share: lengths, values, GELU in float64, its tolerance.

**Tolerance.** GELU is 0.5 x (1 + erf(x / sqrt 2)). The argument of erf is rounded
twice, eps/2 of itself each, which moves erf by at most 0.48 eps; erff is off by two
units in the last place, at most eps; the sum, of up to 2, by eps; the two products by
eps/2 of what is at most |x| each. In all 2.3 * eps * |x|, and 4 leaves room for another
order. It is relative to |x|: far below zero 1 + erf cancels, and what is left is small
beside x. The formula with tanh errs no more: its argument is rounded five times, and
moves tanh by 0.45 of what it is moved itself.
"""

from __future__ import annotations

import math

import torch

from autograder.exercise import Case, Launch, Speed, Structure

THREADS = 256
GELU_FACTOR = 4.0
TIMED = 2**26  # numbers: over four times the L2 of any GPU of today
_REGIMES = {
    "distinct": "normal values",
    "wide": "values from -20 to 20",
    "large": "values of some 1e30",
    "special": "NaN among them",
    "met": "p itself among the numbers drawn",
    "missed": "p just above one of the numbers drawn",
}


def length_case(n: int, regime: str = "distinct", **more: int) -> Case:
    """Return a case of one length, named as the learner reads it."""
    extra = "".join(f", {name} = {size}" for name, size in more.items())
    return Case(f"n = {n:,}{extra}, {_REGIMES[regime]}", {"n": n, **more}, regime)


def draw_values(case: Case, generator: torch.Generator, *shape: int) -> torch.Tensor:
    """Draw numbers for GELU: no two alike, none infinite (torch is at odds there)."""
    x = torch.randn(shape, generator=generator)
    if case.regime == "wide":
        x *= 5.0
    elif case.regime == "large":
        x *= 1e30
    elif case.regime == "special":
        x.view(-1)[::11] = torch.nan
        x.view(-1)[3::17] = -0.0
    return x


def covering_launch(threads: int) -> Launch:
    """Return whole blocks of 256 threads, one block at least."""
    return Launch((max(1, -(-threads // THREADS)),), (THREADS,))


def fours_launch(n: int) -> Launch:
    """Return a launch with a thread for each four elements."""
    return covering_launch(-(-n // 4))


def exact_gelu(x: torch.Tensor) -> torch.Tensor:
    """Return x * Phi(x), in float64."""
    x = x.double()
    return 0.5 * x * (1.0 + torch.erf(x / math.sqrt(2.0)))


def timed(case: Case, bands: dict[str, float]) -> Speed:
    """Return the speed gate of a kernel that reads and writes a float an element."""
    return Speed(
        peer="copy bandwidth",
        case=case,
        bytes_moved=lambda case: 8 * case.sizes["n"],
        bands=bands,
    )


def sixteen_bytes(also_none_of: tuple[str, ...] = ()) -> Structure:
    """Demand loads and stores of 16 bytes, and none of these instructions."""
    return Structure(
        holds=("LDG.E.128", "STG.E.128"),
        lacks=also_none_of,
        message="The values are right. Wanted were loads and stores of 16 bytes "
        "(LDG.E.128, STG.E.128) and no double (DADD, DMUL, DFMA).",
    )


# Outside of the kernel a conversion is a pass over memory of its own.
CONVERTED_INSIDE = Structure(
    runs_no=("_to_copy",),
    message="The values are right, and torch converted some of them, which reads and "
    "writes memory once more: convert in the kernel, behind the load and before the "
    "store.",
)
IN_DOUBLE = ("DADD", "DMUL", "DFMA")
