"""A word's eight codes as signed values, on the host. Nothing is rounded."""

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
    codes = draw_codes(case, generator)
    count = codes.numel()
    return Problem(
        {
            "words": packed(codes),
            "values": None,
            "count": count,
            "zero": case.sizes["zero"],
        },
        {"values": Output((count,), torch.int8)},
    )


def _reference(arguments: Arguments) -> Outputs:
    words, zero = tensor(arguments, "words").long(), arguments["zero"]
    codes = (words[:, None] >> 4 * torch.arange(8)) % 16
    return {"values": (codes - zero).flatten().to(torch.int8)}


UNPACK_INT4 = Exercise(
    id="unpack_int4",
    title="Values out of words",
    kind="core",
    points=10,
    language="cpp",
    entry="function",
    name="unpack_int4",
    source="solutions/int4/unpack_int4.cpp",
    goal="Take the codes out of words of eight, and write what each is worth, in steps "
    "of the scale: the code less `zero`, a byte each.",
    requirements=(
        ORDER,
        "`values[i]` is code i minus `zero`, from -15 to 15.",
        "`count` values are a multiple of 8, or none; `zero` is from 0 to 15.",
    ),
    problem=_problem,
    reference=_reference,
    cases=(
        codes_case(37, 8),
        codes_case(12, 5),
        codes_case(2, 15),
        codes_case(1, 0),
        codes_case(0, 8),
    ),
    tolerance=Tolerance(factor=0.0),
    hints=(
        "In which word is code i, and how many bits of that word lie below it?",
        "It is in words[i / 8], above 4 * (i % 8) bits. Shift those out to the right, "
        "keep the lowest four bits with & 15, and only then subtract.",
        "int code = words[i / 8] >> 4 * (i % 8) & 15; values[i] = code - zero;",
    ),
    onward="Take zero away from all eight codes of a word at once, with one "
    "subtraction. Which bits must be kept free for the borrows?",
)
