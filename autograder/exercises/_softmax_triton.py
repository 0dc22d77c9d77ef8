"""Chapter 8 in Triton: a row in registers, and a row cut into pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch.nn.functional import pad

from autograder.exercise import (
    Case,
    Count,
    Exercise,
    NearMiss,
    Output,
    Problem,
    Structure,
)
from autograder.exercises._softmax import (
    STEM,
    TOLERANCE,
    cut,
    draw_rows,
    drawn,
    hidden_rows,
    highest,
    joined,
    maxima_and_totals,
    of_rows,
    rows_case,
    shared_misses,
    softmax,
    timed,
    weights,
)

PIECE = 4096  # columns of one program, as the stub says
HALF = torch.float16
PRELUDE = (
    "import torch\nimport kernelwright as kw\n"
    "import triton\nimport triton.language as tl\n"
)


def _problem(case: Case, generator: torch.Generator) -> Problem:
    x = draw_rows(case, generator)
    return Problem({"x": x}, {"out": Output(tuple(x.shape), case.dtype)})


def _in_triton(*needed: str) -> Structure:
    # Not tl.exp: tl.exp2 of log2(e) times as much is as good, and one step less.
    return Structure(
        holds=("triton.jit", "tl.load", "tl.store", *needed),
        lacks=("torch.softmax", "torch.exp", "x.softmax", "x.exp", "tl.softmax"),
        runs_no=("softmax", "logsumexp", "aten.exp.", "aten.exp_.", "aten.exp2"),
        message="The values are right, and it is not your Triton kernel alone that "
        "made them: maximum, exponential and sum belong into it.",
    )


# --- softmax_triton ---------------------------------------------------------------


def _padded(x: torch.Tensor) -> torch.Tensor:
    block = 1 << max(0, x.shape[1] - 1).bit_length()
    return pad(x, (0, block - x.shape[1]))


def _zeros_counted(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(_padded(x), -1)[:, : x.shape[1]]


def _first_row(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x[:1], -1).expand_as(x)


def _all_to_the_first_row(x: torch.Tensor) -> torch.Tensor:
    out = torch.full_like(x, torch.nan)
    out[:1] = torch.softmax(x[-1:], -1)
    return out


def _highest_of_all(x: torch.Tensor) -> torch.Tensor:
    # Zeros past the end move the maximum, and are in no sum: 0 where all is below.
    most = highest(_padded(x))
    e = torch.exp((x - most).float()).double()
    return e / e.sum(1, keepdim=True)


def _first_columns(most: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return the mistake of a block of fixed size: what it does not reach is NaN."""

    def out(x: torch.Tensor) -> torch.Tensor:
        reached = torch.softmax(x[:, :most], -1)
        left = x.shape[1] - reached.shape[1]
        return pad(reached, (0, left), value=torch.nan)

    return out


# 8 rows of 512 floats.
_ROW_BYTES = 8 * 512 * 4

SOFTMAX_TRITON = Exercise(
    id="softmax_triton",
    stem=STEM,
    title="A row in registers",
    kind="core",
    points=15,
    language="python",
    entry="function",
    name="softmax_triton",
    source="solutions/softmax/fused.py",
    goal="Make the softmax of each row in one Triton program, which reads the row once "
    "and writes it once.",
    requirements=(
        "x is (rows, columns), contiguous, with at most 16,384 columns, fp32 or fp16; "
        "out is like x.",
        "Maximum, exponentials and sum in fp32; the lanes past the row's end change "
        "neither.",
        "Each element is loaded once and stored once.",
    ),
    problem=_problem,
    reference=softmax,
    cases=(
        rows_case(8, 512),
        rows_case(5, 1000, "growing"),
        rows_case(3, 257, "far"),
        rows_case(4, 300, "cold"),
        rows_case(4, 33, dtype=HALF),
        rows_case(4, 200, "masked"),
        rows_case(3, 1),
        rows_case(0, 7),
        rows_case(2, 16_384, "growing", HALF),
    ),
    hidden=hidden_rows(5000, (torch.float32, HALF)),
    tolerance=TOLERANCE,
    near_misses=(
        NearMiss(
            "zeros past the end",
            of_rows(_zeros_counted),
            "The lanes past the row's end take part: loaded as 0, each adds exp(0 - "
            'maximum) to the sum. Load them as other=float("-inf").',
        ),
        NearMiss(
            "zeros in the maximum",
            of_rows(_highest_of_all),
            "The lanes past the row's end take part in the maximum: loaded as 0, they "
            'are the largest of a row below 0. Load them as other=float("-inf").',
        ),
        NearMiss(
            "first row for all",
            of_rows(_first_row),
            "Every row holds the first one's softmax: program `row` begins at x_ptr + "
            "row * columns.",
        ),
        NearMiss(
            "all to the first row",
            of_rows(_all_to_the_first_row),
            "Every program writes to the first row, and the last one stays: program "
            "`row` stores from out_ptr + row * columns on.",
        ),
        *(
            NearMiss(
                f"the first {most} columns",
                of_rows(_first_columns(most)),
                f"Only the first {most:,} columns are taken in: BLOCK must be a power "
                "of two that holds the whole row, triton.next_power_of_2(columns).",
            )
            for most in (1024, 4096)
        ),
        *(NearMiss(*miss) for miss in shared_misses()),
    ),
    hints=(
        "A program owns a whole row, as one block of a power of two. What must stand "
        "in the lanes past the end, so that they change neither maximum nor sum?",
        'tl.load with mask=c < columns and other=float("-inf"), then .to(tl.float32). '
        "tl.max(x, 0) and tl.sum(weight, 0) are the reductions; the same mask when "
        "you store.",
        "weight = tl.exp(x - tl.max(x, 0)); out = weight / tl.sum(weight, 0). Launch "
        "softmax_kernel[(rows,)](x, out, columns, "
        "BLOCK=triton.next_power_of_2(columns)).",
    ),
    onward="How many registers does a row of 16,384 take from each of 512 threads?",
    counts=(
        Count("bytes", "global", "load", at_most=1.05 * _ROW_BYTES, ideal=_ROW_BYTES),
        Count("bytes", "global", "store", at_most=1.05 * _ROW_BYTES, ideal=_ROW_BYTES),
    ),
    structure=(_in_triton("tl.max", "tl.sum"),),
    speed=timed(16384, 8192, {"bronze": 0.60, "silver": 0.80, "gold": 0.92}),
    prelude=PRELUDE,
)

# --- softmax_long_rows ------------------------------------------------------------


def _pieces(x: torch.Tensor) -> torch.Tensor:
    """Return (rows, pieces, 4096), -inf past the end."""
    return cut(x, PIECE)


def _pieces_alone(x: torch.Tensor) -> torch.Tensor:
    return joined(x, torch.softmax(_pieces(x), -1))


def _totals_as_they_are(x: torch.Tensor) -> torch.Tensor:
    _, total = maxima_and_totals(_pieces(x), -1)
    return weights(x) / total.sum(1)


def _totals_forgotten(x: torch.Tensor) -> torch.Tensor:
    most = highest(_pieces(x))
    return weights(x) / torch.exp(most - highest(most.mT)).sum(1)


def _not_shifted(x: torch.Tensor) -> torch.Tensor:
    most = highest(_pieces(x))
    totals = torch.exp(_pieces(x).float()).double().sum(2, keepdim=True)
    totals = totals.float().double()  # where a float ends it is infinite
    return weights(x) / (totals * torch.exp(most - highest(most.mT))).sum(1)


def _upside_down(x: torch.Tensor) -> torch.Tensor:
    most, totals = maxima_and_totals(_pieces(x), -1)
    pieces = most.shape[1]
    room = 1 << (pieces - 1).bit_length()
    # Places without a piece hold (-inf, 0), and there the factor is infinite.
    most = pad(most, (0, 0, 0, room - pieces), value=-torch.inf)
    totals = pad(totals, (0, 0, 0, room - pieces))
    factor = torch.exp((highest(most.mT) - most).float()).double()
    return weights(x) / (totals * factor).sum(1)


def _maximum_of_the_piece(x: torch.Tensor) -> torch.Tensor:
    """Return the right numbers, and NaN in a piece that has no maximum."""
    empty = (highest(_pieces(x)) == -torch.inf).expand_as(_pieces(x))
    return torch.softmax(x, -1).masked_fill(joined(x, empty), torch.nan)


def _own_maximum_above(x: torch.Tensor) -> torch.Tensor:
    """Return exp(x - the piece's own maximum) over the row's right total."""
    parts = _pieces(x)
    total = weights(x).sum(1)[:, None, None]
    return joined(x, torch.exp(parts - highest(parts)) / total)


def _empty_pieces(x: torch.Tensor) -> torch.Tensor:
    """Return NaN in the rows of which one piece is all -inf."""
    bad = (highest(_pieces(x)) == -torch.inf).any(1)
    return torch.softmax(x, -1).masked_fill(bad, torch.nan)


def _draw_long(case: Case, generator: torch.Generator) -> torch.Tensor:
    x = draw_rows(case, generator)
    if case.regime == "masked":  # a whole piece of the first row
        x[0, :PIECE] = -torch.inf
    return x


def _long_problem(case: Case, generator: torch.Generator) -> Problem:
    x = _draw_long(case, generator)
    return Problem({"x": x}, {"out": Output(tuple(x.shape), case.dtype)})


def _hidden_long(generator: torch.Generator) -> Iterator[Case]:
    yield rows_case(2, drawn(generator, 4097, 8000), "growing")
    yield rows_case(3, drawn(generator, 2, 4000))
    yield rows_case(1, drawn(generator, 9_000, 20_000), "growing", HALF)
    yield rows_case(5, drawn(generator, 4097, 8000), "masked")


# 2 rows of 8,192 floats, two pieces each: read twice, and a pair for each piece, which
# both programs of the row read.
_LONG_BYTES = 2 * 8192 * 4
_PAIRS = 2 * 2 * 2 * 4

SOFTMAX_LONG_ROWS = Exercise(
    id="softmax_long_rows",
    stem=STEM,
    title="A row in pieces",
    kind="core",
    points=20,
    language="python",
    entry="function",
    name="softmax_long_rows",
    source="solutions/softmax/long_rows.py",
    goal="Split each row among many programs: one kernel leaves a maximum and a total "
    "of each piece, a second puts them together and writes.",
    requirements=(
        "x is (rows, columns), contiguous, fp32 or fp16; out is like x; pieces of "
        "4,096 columns, the last one shorter.",
        "`piece_kernel` leaves (maximum, total) of its piece: (-inf, 0) where all of "
        "it is -inf.",
        "`combine_kernel` brings the totals of all pieces to the row's maximum.",
        "x is loaded twice, once by each kernel.",
    ),
    problem=_long_problem,
    reference=softmax,
    cases=(
        rows_case(2, 8192),
        rows_case(2, 10_000, "growing"),
        rows_case(6, 5000, "masked"),
        rows_case(2, 4097, "far"),
        rows_case(3, 100),
        rows_case(1, 20_000, "growing", HALF),
        rows_case(2, 1),
        rows_case(0, 5000),
    ),
    hidden=_hidden_long,
    tolerance=TOLERANCE,
    near_misses=(
        NearMiss(
            "pieces alone",
            of_rows(_pieces_alone),
            "Each piece is a softmax of its own, which sums to 1: the whole row must. "
            "Divide by the total of all pieces.",
        ),
        NearMiss(
            "totals added as they are",
            of_rows(_totals_as_they_are),
            "The pieces' totals are added as they are, each relative to its own "
            "maximum: multiply each by exp(its maximum - the row's) first.",
        ),
        NearMiss(
            "totals forgotten",
            of_rows(_totals_forgotten),
            "Each piece counts as if it held one number: the row's total is the sum of "
            "totals * exp(maxima - maximum).",
        ),
        NearMiss(
            "not shifted",
            of_rows(_not_shifted),
            "A piece's total is the sum of exp(x) as it is: take the piece's maximum "
            "away first, since that is what the second kernel takes it to be.",
        ),
        NearMiss(
            "factor upside down",
            of_rows(_upside_down),
            "The factor is upside down: a piece with a smaller maximum counts less, "
            "exp(its maximum - the row's).",
        ),
        NearMiss(
            "first piece alone",
            of_rows(_first_columns(PIECE)),
            "Only the first piece of each row is done: a grid of (rows,) has one "
            "program a row. It is (rows, pieces), for both kernels.",
        ),
        NearMiss(
            "maximum of the piece",
            of_rows(_maximum_of_the_piece),
            "The second kernel takes the maximum of its own piece, and where all of "
            "that is -inf there is none: the row's is the largest of `maxima`.",
        ),
        NearMiss(
            "own maximum above",
            of_rows(_own_maximum_above),
            "The total is the row's, and the exponentials stand relative to their "
            "piece's maximum: take the row's maximum away.",
        ),
        NearMiss(
            "pieces of nothing",
            of_rows(_empty_pieces),
            "A piece that is all -inf spoils its row: -inf - -inf is NaN. There take 0 "
            "away instead, so that its total is 0.",
        ),
        *(
            NearMiss(*miss)
            for miss in shared_misses()
            if miss[0] != "by the logarithm"  # in a sum of so many it hardly shows
        ),
    ),
    hints=(
        "The pair of a piece is what a thread kept in softmax_online. Who can merge "
        "them, when the first kernel's programs do not wait for each other?",
        "piece_kernel: maximum, and the sum of exp(x - maximum), with 0 in the place "
        "of a maximum of -inf. combine_kernel: the largest of maxima, and totals "
        "brought to it. Both have a program for each row and piece.",
        "maximum = tl.max(maxima, 0); total = tl.sum(totals * tl.exp(maxima - "
        "maximum), 0); out = tl.exp(x - maximum) / total. The grid of both is (rows, "
        "pieces), and ROOM=triton.next_power_of_2(pieces).",
    ),
    onward="Few rows and many pieces, or many rows and none: where would you change?",
    counts=(
        Count(
            "bytes",
            "global",
            "load",
            at_most=1.05 * 2 * _LONG_BYTES,
            ideal=2 * _LONG_BYTES + 2 * _PAIRS,
        ),
        Count(
            "bytes",
            "global",
            "store",
            at_most=1.05 * _LONG_BYTES,
            ideal=_LONG_BYTES + _PAIRS,
        ),
    ),
    structure=(_in_triton("tl.max", "tl.sum"),),
    speed=timed(4096, 65536, {"bronze": 0.35, "silver": 0.48, "gold": 0.58}),
    prelude=PRELUDE,
)
