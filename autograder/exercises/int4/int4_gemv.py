"""One token's product: a warp a row, 32 codes a lane and load."""

from __future__ import annotations

import torch

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
    Count,
    Exercise,
    Launch,
    Output,
    Problem,
    Speed,
)
from autograder.exercises.int4.products import (
    GROUP,
    draw_scales,
    draw_words,
    draw_x,
    nibbles,
    product,
    product_case,
    tolerance,
    weight_bytes,
)

_ROWS = 8  # of a block


def _problem(case: Case, generator: torch.Generator) -> Problem:
    rows, columns = case.sizes["rows"], case.sizes["columns"]
    return Problem(
        {
            "words": draw_words(case, generator).view(rows, columns // 8),
            "scales": draw_scales(rows, columns // GROUP, case, generator),
            "x": draw_x(case, generator)[0],
            "out": None,
            "rows": rows,
            "columns": columns,
        },
        {"out": Output((rows,), torch.float16)},
        Launch((max(1, -(-rows // _ROWS)),), (32 * _ROWS,)),
    )


def _codes(arguments: Arguments, rows: slice) -> torch.Tensor:
    return nibbles(tensor(arguments, "words")[rows]).flatten(1)


def _scales(arguments: Arguments) -> torch.Tensor:
    return tensor(arguments, "scales")


_reference = product(_codes, _scales)


def _bytes(case: Case) -> int:
    return weight_bytes(case) + 2 * (case.sizes["rows"] + case.sizes["columns"])


_COUNTED = product_case(1, 16, 2048)

INT4_GEMV = Exercise(
    id="int4_gemv",
    title="One token: a warp a row",
    kind="core",
    points=20,
    language="cuda",
    entry="kernel",
    name="int4_gemv",
    source="solutions/int4/int4_gemv.cu",
    goal="Multiply a weight of four bits by one token's x: `out[r]` is the sum over "
    "columns c of `(code[r][c] - 8) * scale * x[c]`.",
    requirements=(
        "A word has eight neighbouring columns of a row, the first in its lowest four "
        "bits; a row is `columns / 8` words, `columns` a multiple of 128.",
        "128 columns share a scale: `scales` is (rows, columns / 128).",
        "Blocks of 256 threads: warp w of block b has row 8 b + w, if there is one.",
        "Words come as `uint4`, 32 codes a lane, neighbouring lanes beside each other; "
        "x comes 16 bytes a load. A row's words are read once.",
        "Products, sums and scales in fp32; a result is rounded once, and stored by "
        "one lane.",
    ),
    problem=_problem,
    reference=_reference,
    cases=(
        _COUNTED,
        product_case(1, 13, 1280),
        product_case(1, 9, 128),
        product_case(1, 1, 3200),
        product_case(1, 5, 1024, "offset"),
        product_case(1, 7, 640, "sparse"),
        product_case(1, 3, 0),
        product_case(1, 0, 256),
        product_case(1, 6, 1152, "special"),
    ),
    tolerance=tolerance(_reference, _scales),
    hints=(
        "`words` is a uint4 pointer: a row is columns / 32 of them. Lane 0 takes the "
        "first, lane 1 the second, and 32 lanes further it goes on. Which 32 numbers "
        "of x belong to load i, and which scale?",
        "Of a word, code i is `word >> 4 * i & 15`. Load i of a row meets x from "
        "column 32 i on, four loads of eight halves, and its group is i / 4. When a "
        "lane has finished its loads, add up the lanes by shuffles, as reductions do.",
        "`for (int i = lane; i < columns / 32; i += 32)`: `uint4 four = words[row * "
        "(columns / 32) + i]`; add scale * (eight_products(four.x, numbers[4 * i]) + "
        "... + eight_products(four.w, numbers[4 * i + 3])), where `numbers` is x as "
        "uint4. Then __shfl_down_sync by 16, 8, 4, 2, 1, and lane 0 stores.",
    ),
    onward="Let a warp take two rows, or four: x is read half as often, and more loads "
    "of the weight are under way. What does the GPU say?",
    counts=(
        # Each row reads all of x, and four lanes each scale.
        Count("bytes", "global", "load", passes={"x": 16, "scales": 4}),
        # A load of words, four of x and one of a scale for 1,024 columns.
        Count("requests", "global", "load", passes={"x": 16, "scales": 32}, width=16),
        # A load's 16 bytes of x are half of a sector, and so are its eight scales. What
        # is more than that are words whose neighbours come with another load.
        Count("moved", "global", "load", passes={"x": 32, "scales": 2}),
        Count("bytes", "global", "store"),
        Count("writers", "global", "store", ideal=1, times=1),
    ),
    speed=Speed(
        peer="copy bandwidth",
        case=product_case(1, 32_768, 16_384),
        bytes_moved=_bytes,
        # Guesses: to be measured on an H200.
        bands={"bronze": 0.22, "silver": 0.32, "gold": 0.42},
        reads_only=True,
    ),
)
