"""The detective: the lower four bits of a byte lose their sign.

**Tolerance.** A value times the scale is rounded once, by eps/2; a factor of 1 is twice
that.
"""

from __future__ import annotations

import torch

from autograder.drawing import rounded, tensor
from autograder.exercise import (
    Arguments,
    Case,
    Exercise,
    Launch,
    Output,
    Outputs,
    Problem,
    Tolerance,
)
from autograder.ideals import moves

_THREADS = 256


def bytes_case(n: int, regime: str = "distinct") -> Case:
    """Return a case of ``n`` values, two a byte."""
    some = {"distinct": "values from -8 to 7", "positive": "values from 0 to 7"}
    return Case(f"n = {n:,}, {some[regime]}", {"n": n}, regime)


def _problem(case: Case, generator: torch.Generator) -> Problem:
    n = case.sizes["n"]
    low = 0 if case.regime == "positive" else -8
    values = torch.randint(low, 8, (n,), generator=generator)
    nibbles = (values % 16).reshape(-1, 2)
    both = (nibbles[:, 0] + 16 * nibbles[:, 1]).to(torch.uint8).view(torch.int8)
    scale = 0.01 + 0.05 * float(torch.rand((), generator=generator))
    return Problem(
        {"bytes": both, "scale": scale, "out": None, "n": n},
        {"out": Output((n,), torch.float32)},
        Launch((max(1, -(-n // (2 * _THREADS))),), (_THREADS,)),
    )


def _reference(arguments: Arguments) -> Outputs:
    both = tensor(arguments, "bytes").long() % 256
    nibbles = torch.stack((both % 16, both // 16), 1).flatten()
    values = torch.where(nibbles < 8, nibbles, nibbles - 16).double()
    return {"out": values * rounded(arguments, "scale")}


SIGN_EXTENSION = Exercise(
    id="sign_extension",
    title="Right for every positive weight",
    kind="detective",
    points=15,
    language="cuda",
    entry="kernel",
    name="sign_extension",
    source="autograder/exercises/int4/sign_extension.cu",
    goal="Mend a kernel that widens weights of four bits with a sign. A layer without "
    "negative weights passed its test; of a real one some are off by 16 scales.",
    requirements=(
        "A byte holds two values from -8 to 7 in two's complement: `out[2 * i]` is "
        "made of the lower four bits of `bytes[i]`, `out[2 * i + 1]` of the upper "
        "four; each is multiplied by `scale`.",
        "The launch has a thread for every byte, in whole blocks; `n` is even, or 0.",
        "Each byte is read once, each value written once, coalesced.",
    ),
    problem=_problem,
    reference=_reference,
    cases=(
        bytes_case(2048),
        bytes_case(1010),
        *(bytes_case(n) for n in (514, 512, 510, 2, 0)),
        bytes_case(600, "positive"),
    ),
    tolerance=Tolerance(factor=1.0),
    repeats=("bytes",),
    hints=(
        "Run it on bytes of your own, 0x00 to 0xff, and list where it is wrong. Are "
        "both halves of a byte wrong, and for which values?",
        "The upper half is right: >> on a negative int brings copies of the sign bit "
        "along. For the lower half, (both & 15) << 4 is an int of 32 bits. Is bit 7 "
        "of it the sign of anything?",
        "Make it a byte before it comes back: static_cast<signed char>(both << 4) >> "
        "4. Without a shift: low = both & 15; then (low ^ 8) - 8.",
    ),
    onward="On an x86 host plain char has a sign, on an ARM host it has none. Which of "
    "your lines would that break, if it said char in the place of signed char?",
    counts=moves(),
)
