"""Eight codes into a word, on the host. Integers: nothing is rounded."""

from __future__ import annotations

import torch

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
    Exercise,
    Output,
    Outputs,
    Problem,
    Tolerance,
)
from autograder.exercises.int4.codes import ORDER, codes_case, draw_codes, packed


def _problem(case: Case, generator: torch.Generator) -> Problem:
    codes = draw_codes(case, generator).flatten()
    return Problem(
        {"codes": codes, "words": None, "count": codes.numel()},
        {"words": Output((case.sizes["words"],), torch.int32, bits=True)},
    )


def _reference(arguments: Arguments) -> Outputs:
    return {"words": packed(tensor(arguments, "codes").reshape(-1, 8))}


PACK_INT4 = Exercise(
    id="pack_int4",
    title="Eight codes in a word",
    kind="core",
    points=10,
    language="cpp",
    entry="function",
    name="pack_int4",
    source="solutions/int4/pack_int4.cpp",
    goal="Put codes of four bits, a byte each, into words of 32 bits, eight each.",
    requirements=(
        ORDER,
        "Each code is from 0 to 15; `count` codes are a multiple of 8, or none.",
        "Every word is written, and what was in it before plays no part.",
    ),
    problem=_problem,
    reference=_reference,
    cases=tuple(codes_case(words) for words in (37, 2, 1, 0)),
    tolerance=Tolerance(factor=0.0),
    repeats=("codes",),
    hints=(
        "Which codes belong to word i, and by how many bits is each of them moved?",
        "Word i has codes[8 * i] to codes[8 * i + 7]. Begin with a word of 0; shift "
        "code k left by 4 * k and bring it in with |=. Store the word once.",
        "for (long i = 0; i < count / 8; ++i) { unsigned word = 0; for (int k = 0; k < "
        "8; ++k) word |= unsigned(codes[8 * i + k]) << 4 * k; words[i] = word; }",
    ),
    onward="Read eight codes as one 64-bit number, and pack them by three steps of "
    "shift, or and mask. Is it faster than what -O2 makes of your loop?",
)
