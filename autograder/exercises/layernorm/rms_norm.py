"""RMSNorm of 16-bit numbers, summed in 32 bits."""

from __future__ import annotations

import torch

from autograder.exercise import (
    Arguments,
    Case,
    Exercise,
    Output,
    Outputs,
    Problem,
    Structure,
    Tolerance,
)
from autograder.exercises.layernorm.shared import (
    affine,
    draw_affine,
    draw_rows,
    eps_of,
    parts,
    rows_case,
    timed,
    warps_launch,
)
from autograder.ideals import barriers, moves

HALF = torch.float16


def halves_case(rows: int, columns: int, regime: str = "distinct") -> Case:
    """Return a case of halves."""
    return rows_case(rows, columns, regime, HALF)


def _problem(case: Case, generator: torch.Generator) -> Problem:
    x = draw_rows(case, generator)
    weight, _ = draw_affine(case, generator)
    rows, columns = x.shape
    return Problem(
        {
            "x": x.half(),
            "weight": weight.half(),
            "out": None,
            "rows": rows,
            "columns": columns,
            "eps": eps_of(case),
        },
        {"out": Output((rows, columns), HALF)},
        warps_launch(rows),
    )


def _reference(arguments: Arguments) -> Outputs:
    p = parts(arguments)
    return {"out": affine(p.x * (p.rms**2 + p.eps).rsqrt(), arguments)}


RMS_NORM = Exercise(
    id="rms_norm",
    title="RMSNorm of halves",
    kind="core",
    points=20,
    language="cuda",
    entry="kernel",
    name="rms_norm",
    source="solutions/layernorm/rms.cu",
    goal="Divide rows of up to 2,048 halves by their root mean square, a warp a row: "
    "16-bit numbers in memory, 32-bit sums.",
    requirements=(
        "Lane l holds packs l, l + 32, … of eight halves in `v`; `columns` is a "
        "multiple of 8.",
        "`x / sqrt(mean of squares + eps) * weight`, computed in float and rounded "
        "once.",
        "x and weight are each loaded once a row, 16 bytes an instruction.",
        "No shared memory, no barrier.",
    ),
    problem=_problem,
    reference=_reference,
    cases=(
        # All lanes busy: only there do 32 packs apart cost twice the sectors.
        halves_case(6, 2048),
        halves_case(5, 1024),
        halves_case(5, 1000, "large"),
        halves_case(4, 8),
        halves_case(3, 264, "small"),
        halves_case(3, 520, "nan"),
    ),
    # Rounded once that is half an eps, and fp32 has thousands of its own in one.
    tolerance=Tolerance(factor=0.52),
    hints=(
        "One sum is all: the squares. What needs to stay in registers is x as it came, "
        "eight halves in 16 bytes.",
        "__half22float2(v[k].pairs[j]) gives two floats. Sum their squares, add the "
        "lanes by __shfl_xor_sync, and go through v once more to write.",
        "squares += pair.x * pair.x + pair.y * pair.y;  scale = rsqrtf(squares / "
        "columns + eps);  v[k].pairs[j] = __floats2half2_rn(pair.x * scale * by.x, "
        "pair.y * scale * by.y);  to[i] = v[k].whole;",
    ),
    onward="Count the shuffles: layer norm needs ten a row. And here?",
    counts=(*moves({"weight": 6}, width=16), barriers(0)),
    structure=(
        Structure(
            holds=("LDG.E.128", "STG.E.128", "SHFL"),
            lacks=("STS", "ATOMS"),
            message="The values are right, and the machine code does not hold what is "
            "asked: 128-bit loads and stores (LDG.E.128, STG.E.128), shuffles (SHFL), "
            "and no shared memory (STS).",
        ),
    ),
    speed=timed(131072, 2048, 2, {"bronze": 0.55, "silver": 0.70, "gold": 0.80}),
)
