"""The ladder: up to 64 tokens on the tensor cores, words in the fragments' order."""

from __future__ import annotations

from functools import cache

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
    Structure,
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
from autograder.ideals import needed

_TOKENS, _ROWS = 16, 32  # of a block


def _problem(case: Case, generator: torch.Generator) -> Problem:
    tokens, rows, columns = (case.sizes[n] for n in ("tokens", "rows", "columns"))
    words = draw_words(case, generator).view(rows // 16, columns // 64, 32, 4)
    return Problem(
        {
            "words": words,
            "scales": draw_scales(columns // GROUP, rows, case, generator),
            "x": draw_x(case, generator),
            "out": None,
            "tokens": tokens,
            "rows": rows,
            "columns": columns,
        },
        {"out": Output((tokens, rows), torch.float16)},
        Launch((-(-tokens // _TOKENS), rows // _ROWS), (256,)),
    )


def _codes(arguments: Arguments, rows: slice) -> torch.Tensor:
    words = tensor(arguments, "words")[rows.start // 16 : rows.stop // 16]
    down, across = words.shape[:2]
    # Of a word: the first or second of a pair, columns 0 or 2 on, row g or g + 8.
    found = nibbles(words).view(down, across, 8, 4, 4, 2, 2, 2)
    # Rows: a tile, of it the lower half, g. Columns: a tile, t, word, two on, second.
    return found.permute(0, 7, 2, 1, 3, 4, 6, 5).reshape(16 * down, 64 * across)


def _scales(arguments: Arguments) -> torch.Tensor:
    return tensor(arguments, "scales").mT


_reference = product(_codes, _scales)


@cache
def _dense(rows: int, columns: int, device: torch.device) -> torch.Tensor:
    return torch.randn(rows, columns, dtype=torch.float16, device=device)


def _peer(arguments: Arguments) -> object:
    x, scales = tensor(arguments, "x"), tensor(arguments, "scales")
    # Of which values makes no difference to its time.
    return x @ _dense(scales.shape[1], x.shape[1], x.device).mT


def _bytes(case: Case) -> int:
    tokens, rows, columns = (case.sizes[n] for n in ("tokens", "rows", "columns"))
    return weight_bytes(case) + 2 * tokens * (rows + columns)


_COUNTED = product_case(16, 64, 512)

INT4_GEMM = Exercise(
    id="int4_gemm",
    title="Dozens of tokens, on the tensor cores",
    kind="ladder",
    points=30,
    language="cuda",
    entry="kernel",
    name="int4_gemm",
    source="solutions/int4/int4_gemm.cu",
    goal="Compute `out = x weightᵀ` for 1 to 64 tokens with the weight in four bits, "
    "faster than torch multiplies by the same weight in fp16.",
    requirements=(
        "Blocks of 256 threads have 16 tokens and 32 rows of the weight: `rows` is a "
        "multiple of 32, `columns` of 128. x is (tokens, columns), out (tokens, rows).",
        "A tile of 16 rows and 64 columns is 32 `uint4`, one a lane; tiles of a row of "
        "tiles follow each other. Lane 4 g + t has rows g and g + 8 of columns 16 t to "
        "16 t + 15: word f has columns 16 t + 4 f to 16 t + 4 f + 3, in the order that "
        "`kw::widen` makes a fragment of.",
        "A weight is (code - 8) * scale. `scales` is (columns / 128, rows).",
        "On `mma.sync`, with sums and scales in fp32 and in registers; each result is "
        "rounded once and stored once.",
        "A block loads each of its words once, as `uint4`; x comes 16 bytes a load.",
        "The rest is yours: what a warp does, what is under way, whether x comes "
        "through shared memory.",
    ),
    problem=_problem,
    reference=_reference,
    cases=(
        _COUNTED,
        product_case(1, 32, 640),
        product_case(8, 32, 128),
        product_case(13, 288, 256),
        product_case(30, 32, 256),
        product_case(64, 32, 256),
        product_case(33, 32, 640, "offset"),
        product_case(5, 64, 1152, "sparse"),
        product_case(17, 32, 128, "special"),
    ),
    tolerance=tolerance(_reference, _scales),
    hints=(
        "The weight is the left operand, so a row of the fragment is a row of the "
        "weight, and a column of the right one a token: b[0] and b[1] are two numbers "
        "each of token g. Which columns may they be? Those that the lane's four "
        "registers of the weight have: the order of a sum is free.",
        "Word f of a lane is multiplied by x[token][64 * tile + 16 * t + 4 * f] and "
        "the three behind it: two registers. So 16 bytes of x are the right operands "
        "of two words, and 32 bytes those of a tile.",
        "For a group of 128 columns: two uint4 of words; for each of eight words "
        "kw::widen<__half>(word, zero, a), and for each eight tokens "
        "kw::mma_sync<__half>(part[j], a, b, part[j]), b being half of a uint4 of x. "
        "Then sum[j][0] and [1] += scale of row g * part[j][0] and [1]; [2] and [3] "
        "are row g + 8's. zero is kw::Int4<__half>::zero(8), twice. #pragma unroll.",
    ),
    onward="64 tokens are four blocks that load the same words. A block that had all "
    "64 would load them once: what becomes of its registers, and of the number of "
    "blocks? many.cu has one answer.",
    counts=(
        # Each row of tiles reads x, and half of each sector a time; so it reads scales.
        Count("moved", "global", "load", passes={"x": 8, "scales": 2}),
        Count(
            "requests",
            "global",
            "load",
            passes={"x": 4, "scales": 16},
            width=16,
            times=1.3,
        ),
        Count("bytes", "global", "store"),
        Count("writers", "global", "store", ideal=1, times=1),
        # A block: 2 tiles down and 8 across, 4 words, 2 times 8 tokens.
        needed("matrix products", 2 * 8 * 4 * 2),
    ),
    structure=(
        Structure(
            holds=("HMMA",),
            lacks=("LDL", "STL"),
            arch="sm_80",
            message="The values are right. Wanted were the tensor cores (HMMA) for the "
            "products, and all that a thread keeps in registers, not in local memory "
            "(LDL, STL). An array's indices must be known to the compiler, so put "
            "#pragma unroll before each loop over sums; and a thread may keep no more "
            "than there are registers for.",
        ),
    ),
    speed=Speed(
        peer="torch: x @ weight.T in fp16",
        run_peer=_peer,
        case=product_case(16, 16_384, 32_768),
        bytes_moved=_bytes,
        # Its peer reads four times as many bytes. Guesses: to be measured on an H200.
        bands={"bronze": 1.0, "silver": 1.4, "gold": 1.85},
    ),
    shares={"correct": 0.4, "counts": 0.2, "speed": 0.4},
)
