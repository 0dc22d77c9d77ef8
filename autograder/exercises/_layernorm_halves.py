"""Chapter 5: RMSNorm of 16-bit numbers, summed in 32 bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
    Exercise,
    NearMiss,
    Output,
    Outputs,
    Problem,
    Structure,
    Tolerance,
)
from autograder.exercises._layernorm import (
    EPS,
    STEM,
    WARP,
    Parts,
    affine,
    draw_affine,
    draw_rows,
    eps_of,
    hidden_rows,
    mistaken,
    rows_case,
    timed,
    warps_launch,
)
from autograder.exercises._layernorm_mistakes import down
from autograder.totals import barriers, moves

HALF = torch.float16


def _halves_case(rows: int, columns: int, regime: str = "distinct") -> Case:
    return rows_case(rows, columns, regime, HALF)


def _hidden_halves(generator: torch.Generator) -> Iterator[Case]:
    for case in hidden_rows(2049, 8, ("large", "small"))(generator):
        yield _halves_case(case.sizes["rows"], case.sizes["columns"], case.regime)


def _halves_problem(case: Case, generator: torch.Generator) -> Problem:
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


def _rms(
    scale: Callable[[Parts], torch.Tensor], *, weighted: bool = True
) -> Callable[[Arguments], Outputs]:
    """Return x times ``scale(parts)``, and the weight."""
    return mistaken(
        lambda p, arguments: (
            affine(p.x * scale(p), arguments) if weighted else p.x * scale(p)
        )
    )


def _summed_in_half(p: Parts) -> torch.Tensor:
    """Return the scale where the mean of squares was kept in fp16, and overflowed."""
    square = p.rms**2 * p.x.shape[1]
    lost = torch.where(square > 65_504.0, torch.inf, square)
    return (lost / p.x.shape[1] + p.eps).rsqrt()


def _in_halves(p: Parts, arguments: Arguments) -> torch.Tensor:
    """Return the mistake of arithmetic on halves: each step rounds to 16 bits."""
    scale = (p.rms**2 + p.eps).rsqrt().half()
    return p.x.half() * scale * tensor(arguments, "weight")


def _by_lane(
    squares: torch.Tensor,
    handed_on: Callable[[torch.Tensor], torch.Tensor] = lambda lanes: lanes,
) -> torch.Tensor:
    """Give each element the sum that its lane has, of its packs or after shuffles."""
    columns = squares.shape[1]
    lane = torch.arange(columns) // 8 % WARP
    lanes = squares.new_zeros(len(squares), WARP).index_add(1, lane, squares)
    return handed_on(lanes)[:, lane]


def _mean_of_firsts(p: Parts) -> torch.Tensor:
    squares = (p.x[:, ::2] ** 2).sum(1, keepdim=True)
    return (squares / p.x.shape[1] + p.eps).rsqrt()


RMS_NORM = Exercise(
    id="rms_norm",
    stem=STEM,
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
    problem=_halves_problem,
    reference=_rms(lambda p: (p.rms**2 + p.eps).rsqrt()),
    cases=(
        # All lanes busy: only there do 32 packs apart cost twice the sectors.
        _halves_case(6, 2048),
        _halves_case(5, 1024),
        _halves_case(5, 1000, "large"),
        _halves_case(4, 8),
        _halves_case(3, 264, "small"),
        _halves_case(3, 520, "nan"),
    ),
    hidden=_hidden_halves,
    # Rounded once that is half an eps; before the weight too, as much again. Three
    # times, in 16-bit arithmetic throughout, it is up to one and a half.
    tolerance=Tolerance(factor=1.02),
    near_misses=(
        NearMiss(
            "mean taken away",
            mistaken(
                lambda p, arguments: affine(
                    (p.x - p.mean) * (p.rms**2 + p.eps).rsqrt(), arguments
                )
            ),
            "The mean is taken away from x. RMSNorm does not know a mean: that is "
            "what it saves.",
        ),
        NearMiss(
            "variance",
            _rms(lambda p: p.rstd),
            "The rows are divided by their deviation, about the mean. RMSNorm takes "
            "the mean of the squares of x itself.",
        ),
        NearMiss(
            "layer norm",
            mistaken(lambda p, arguments: affine(p.h, arguments)),
            "That is layer norm: RMSNorm takes away no mean, neither from x nor in the "
            "sum of squares.",
        ),
        NearMiss(
            "no eps",
            _rms(lambda p: 1 / p.rms),
            "eps is not added to the mean of squares: small rows come out too large.",
        ),
        NearMiss(
            "in halves",
            mistaken(_in_halves),
            "Scale, product and output are each rounded to 16 bits. Widen first, "
            "multiply in float, and round once, by __floats2half2_rn.",
        ),
        NearMiss(
            "eps outside",
            _rms(lambda p: 1 / (p.rms + p.eps)),
            "eps is added behind the square root; it belongs to the mean of squares, "
            "under it.",
        ),
        NearMiss(
            "eps by heart",
            _rms(lambda p: (p.rms**2 + EPS).rsqrt()),
            "1e-5 is added whatever `eps` says: take the kernel's argument.",
        ),
        NearMiss(
            "weight forgotten",
            _rms(lambda p: (p.rms**2 + p.eps).rsqrt(), weighted=False),
            "The weight is missing.",
        ),
        NearMiss(
            "sum, not mean",
            _rms(lambda p: (p.rms**2 * p.x.shape[1] + p.eps).rsqrt()),
            "The sum of squares is not divided by the number of columns.",
        ),
        NearMiss(
            "mean over packs",
            _rms(lambda p: (8 * p.rms**2 + p.eps).rsqrt()),
            "The sum of squares is divided by the number of packs: a pack is eight "
            "numbers, divide by columns.",
        ),
        NearMiss(
            "root for its inverse",
            _rms(lambda p: (p.rms**2 + p.eps).sqrt()),
            "The rows are multiplied by their root mean square: divide by it, that is, "
            "multiply by rsqrtf, one over the root.",
        ),
        NearMiss(
            "lanes alone",
            _rms(lambda p: (_by_lane(p.x**2) / p.x.shape[1] + p.eps).rsqrt()),
            "Each lane goes on with the squares of its own packs: the lanes' sums must "
            "be added by shuffles.",
        ),
        NearMiss(
            "only lane 0 knows",
            _rms(lambda p: (_by_lane(p.x**2, down) / p.x.shape[1] + p.eps).rsqrt()),
            "Each lane goes on with a sum of its own: after __shfl_down_sync only lane "
            "0 has the whole. With __shfl_xor_sync every lane gets it.",
        ),
        NearMiss(
            "half of each pair",
            _rms(_mean_of_firsts),
            "Only the first of each pair is summed: pair.y * pair.y is missing.",
        ),
        NearMiss(
            "summed in half",
            _rms(_summed_in_half),
            "The squares are summed in half, and a half ends at 65,504: the sum is "
            "infinite and the row 0. Widen first (__half22float2), and sum in float.",
        ),
    ),
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
