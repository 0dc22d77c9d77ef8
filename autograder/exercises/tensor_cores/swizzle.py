"""A tile that ldmatrix reads without conflicts."""

from __future__ import annotations

import torch

from autograder.drawing import tensor
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
from autograder.exercises.tensor_cores.shared import draw_matrix
from autograder.ideals import moves, once_through_shared


def copy_case(tiles: int, regime: str = "distinct") -> Case:
    """Return a case of so many tiles."""
    said = {"distinct": "normal values", "special": "NaN and Inf among them"}[regime]
    name = f"{tiles} tile{'s' if tiles > 1 else ''} of 64 x 64, {said}"
    return Case(name, {"tiles": tiles}, regime, torch.float16)


def _copy_problem(case: Case, generator: torch.Generator) -> Problem:
    tiles = case.sizes["tiles"]
    x = draw_matrix(64 * tiles, 64, case.regime, generator)
    return Problem(
        {"x": x, "out": None},
        {"out": Output(tuple(x.shape), torch.float16)},
        Launch((tiles,), (128,)),
    )


def _copied(arguments: Arguments) -> Outputs:
    return {"out": tensor(arguments, "x").double()}


SWIZZLE = Exercise(
    id="swizzle",
    title="Eight rows, all 32 banks",
    kind="core",
    points=5,
    language="cuda",
    entry="kernel",
    name="copy_fragments",
    source="solutions/tensor_cores/swizzle.cu",
    goal="Place the groups of a row so that eight rows keep the same group in eight "
    "places.",
    requirements=(
        "A row has no padding: 64 halves, 128 bytes, eight groups.",
        "Groups of eight halves stay together, and every one has a place of its own.",
        "Four wavefronts per request of 512 bytes, stores and ldmatrix.",
    ),
    problem=_copy_problem,
    reference=_copied,
    cases=(copy_case(1), copy_case(3), copy_case(2, "special")),
    tolerance=Tolerance(factor=0.0),
    hints=(
        "Rows are 128 bytes long, so all of them begin at the same bank. In which "
        "place may row r keep its group g, so that row r + 1 keeps it in another?",
        "Chapter 2's exclusive or: it permutes the groups of each row, and by another "
        "number in each of eight rows.",
        "group ^= row % 8;",
    ),
    onward="Swizzle by row % 4 instead, and predict the wavefronts before you trace.",
    counts=(*moves(asked=True), *once_through_shared(64 * 64 * 2)),
    # Without any swizzle the copy is right, and slow: the counts are what is asked.
    shares={"correct": 0.0, "counts": 1.0, "speed": 0.0},
)
