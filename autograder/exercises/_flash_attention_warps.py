"""Chapter 9: both products on tensor cores."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
    Exercise,
    Launch,
    NearMiss,
    Outputs,
    Problem,
    Speed,
    Structure,
)
from autograder.exercises._flash_attention import (
    HALF_TOLERANCE,
    HEAD_DIM,
    STEM,
    case_of,
    hidden_shapes,
    kernel_problem,
    reference,
    scale_of,
    weights_of,
)
from autograder.exercises._flash_attention_mistakes import loop_mistakes
from autograder.totals import barriers, moves, needed

# --- flash_wmma -------------------------------------------------------------------

WMMA_KEYS = 64


def _wmma_problem(case: Case, generator: torch.Generator) -> Problem:
    arguments, outputs = kernel_problem(case, generator, torch.float16)
    grid = (-(-case.sizes["q_len"] // 64), case.sizes["heads"])
    return Problem(arguments, outputs, Launch(grid, (128,)))


def _sdpa(arguments: Arguments) -> object:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q, k, v = (tensor(arguments, n)[None] for n in ("q", "k", "v"))
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)


def _flops(case: Case) -> int:
    sizes = case.sizes
    return 4 * sizes["heads"] * sizes["q_len"] * sizes["kv_len"] * HEAD_DIM


def _bytes(case: Case) -> int:
    rows = 2 * case.sizes["q_len"] + 2 * case.sizes["kv_len"]
    return 2 * case.sizes["heads"] * rows * HEAD_DIM


def _first_keys(arguments: Arguments) -> Outputs:
    """Return what the first 16 keys of each tile add, of all weights."""
    keys = torch.arange(tensor(arguments, "k").shape[-2])
    weights = weights_of(arguments) * (keys % WMMA_KEYS < 16)
    return {"out": weights @ tensor(arguments, "v").double()}


_PAD = 8  # halves at the end of a row of the tiles, as the stub says


def _strips(
    arguments: Arguments,
    *,
    factors: Callable[[torch.Tensor], torch.Tensor] | None = None,
    keys: torch.Tensor | None = None,
    weights: torch.Tensor | None = None,
    values: Callable[[torch.Tensor], torch.Tensor] = lambda tile: tile,
    late: bool = False,
    often: bool = False,
) -> Outputs:
    """Do as the kernel does for strips of 16 queries, with a mistake.

    Args:
        arguments: of the exercise.
        factors: from a strip's 16 factors (..., 16) to those of its sums
            (..., 16, HEAD_DIM).
        keys: of a tile: whose value meets each weight.
        weights: of a tile: whose weight meets each value.
        values: what is read of a tile of values (..., WMMA_KEYS, HEAD_DIM).
        late: mend when the tile has been added.
        often: mend before every 16 keys of a tile.
    """
    q, k, v = (tensor(arguments, n).float() for n in ("q", "k", "v"))
    q_len = q.shape[1]
    pad = torch.nn.functional.pad
    q = pad(q, (0, 0, 0, -q_len % 16)).unflatten(1, (-1, 16))
    room = -k.shape[1] % WMMA_KEYS
    scores = pad(q @ k.mT[:, None] * scale_of(arguments), (0, room), value=-math.inf)
    v = pad(v, (0, 0, 0, room))[:, None]
    top = torch.full_like(q[..., 0], -math.inf)
    weight, total = torch.zeros_like(top), torch.zeros_like(q)
    for start in range(0, scores.shape[-1], WMMA_KEYS):
        tile = slice(start, start + WMMA_KEYS)
        higher = torch.maximum(top, scores[..., tile].amax(-1))
        mend, p = (
            torch.exp(top - higher),
            torch.exp(scores[..., tile] - higher[..., None]),
        )
        weight = weight * mend + p.sum(-1)
        factor = factors(mend) if factors else mend[..., None]
        total = total * (1.0 if late else factor)
        p = p.half().float()
        read = values(v[..., tile, :])
        p = p if weights is None else p[..., weights]
        read = read if keys is None else read[..., keys, :]
        step = 16 if often else WMMA_KEYS
        for n in range(0, WMMA_KEYS, step):
            total = total * (factor if n else 1.0)
            total = total + p[..., n : n + step] @ read[..., n : n + step, :]
        total = total * (factor if late else 1.0)
        top = higher
    return {"out": (total / weight[..., None]).flatten(1, 2)[:, :q_len]}


def _by_columns(mend: torch.Tensor) -> torch.Tensor:
    """Give column j what belongs to row j."""
    across = mend.repeat(1, 1, HEAD_DIM // 16)
    return across[..., None, :].expand(*mend.shape, HEAD_DIM)


def _by_elements(mend: torch.Tensor) -> torch.Tensor:
    """Give element i of each lane's fragment what belongs to row i."""
    row, column = torch.arange(16)[:, None], torch.arange(HEAD_DIM) % 16
    own: torch.Tensor = mend[..., column // 8 * 4 + row // 8 * 2 + column % 2]
    return own


def _of_row(row: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """Give all of row i what belongs to row[i]."""
    return lambda mend: mend[..., row, None]


def _by_lanes(mend: torch.Tensor) -> torch.Tensor:
    """Give each lane what belongs to the row of scores that it shared."""
    row, column = torch.arange(16)[:, None], torch.arange(HEAD_DIM)
    lane = row % 8 * 4 + column % 8 // 2
    own: torch.Tensor = mend[..., lane // 2]
    return own


def _exchanged(tile: torch.Tensor) -> torch.Tensor:
    """Read the 16 x 16 of row block n and column block d at row d and column n."""
    parts = tile.unflatten(-2, (-1, 16)).unflatten(-1, (-1, 16))
    exchanged: torch.Tensor = parts.transpose(-4, -2)
    return exchanged.flatten(-2).flatten(-3, -2)


def _turned(tile: torch.Tensor) -> torch.Tensor:
    parts = tile.unflatten(-2, (-1, 16)).unflatten(-1, (-1, 16)).transpose(-3, -2)
    turned: torch.Tensor = parts.mT.transpose(-3, -2)
    return turned.flatten(-2).flatten(-3, -2)


def _unpadded(tile: torch.Tensor) -> torch.Tensor:
    """Read padded rows as if they had no padding, in which the emulator keeps NaN."""
    memory = torch.nn.functional.pad(tile, (0, _PAD), value=math.nan).flatten(-2)
    n, d = torch.arange(WMMA_KEYS)[:, None], torch.arange(HEAD_DIM)
    at = n // 16 * 16 * (HEAD_DIM + _PAD) + n % 16 * HEAD_DIM + d
    read: torch.Tensor = memory[..., at]
    return read


_IN_TILE = torch.arange(WMMA_KEYS)
_STRIPS = tuple(
    NearMiss(name, partial(_strips, **how), message)
    for name, how, message in (
        (
            "mended by columns",
            {"factors": _by_columns},
            "Column j of the sums is multiplied by the factor of row j: element (i, j) "
            "of `mending` must be mends[i], whatever j is. By columns, 0 apart: "
            "wmma::mem_col_major.",
        ),
        (
            "mended by elements",
            {"factors": _by_elements},
            "Element i of a lane's fragment is not row i: which row it is, nobody may "
            "know. Load the factors into a fragment too, with columns 0 apart.",
        ),
        (
            "mended by lanes",
            {"factors": _by_lanes},
            "A lane's elements are not of the row whose scores it weighed: which rows "
            "they are of, nobody may know. Load the factors into a fragment too, with "
            "columns 0 apart.",
        ),
        (
            "mended by the first",
            {"factors": _of_row(torch.arange(16) % 8)},
            "All elements of a lane get one factor, and they are of two rows: element "
            "x[i] of the sums is multiplied by element x[i] of `mending`.",
        ),
        (
            "mended late",
            {"late": True},
            "The sums are mended when the tile is in them already: first the old sums "
            "times mends, then the products.",
        ),
        (
            "mended for every 16 keys",
            {"often": True},
            "The sums are mended for every 16 keys: it is once a tile, before its "
            "first product.",
        ),
        (
            "rows and columns exchanged",
            {"values": _exchanged},
            "Rows and columns of the values have changed places: keys n to n + 15 are "
            "rows KEYS + n and on, and fragment d begins at column 16 * d.",
        ),
        (
            "first values again",
            {"keys": _IN_TILE % 16},
            "All weights of a tile meet its first 16 values: those of key n lie at "
            "tiles[KEYS + n].",
        ),
        (
            "first weights again",
            {"weights": _IN_TILE % 16},
            "All values of a tile meet its first 16 weights: those of key n lie at "
            "weights + n.",
        ),
        (
            "first numbers again",
            {"values": lambda tile: tile[..., torch.arange(HEAD_DIM) % 16]},
            "Every 16 numbers of the output repeat the first 16: fragment d of the "
            "values begins at column 16 * d.",
        ),
        (
            "values turned",
            {"values": _turned},
            "Each 16 x 16 of the values is multiplied transposed: they lie by rows, a "
            "key a row, as kw::Right<T> takes them.",
        ),
        (
            "values without padding",
            {"values": _unpadded},
            "Every number is NaN. The padding is read, which nobody wrote: the rows of "
            "the values are D + PAD halves apart, and the weights of key n lie at "
            "weights + n, counted in halves. Or 0 is divided by 0: the sums are "
            "multiplied by the factors, the first of which is 0.",
        ),
    )
)


FLASH_WMMA = Exercise(
    id="flash_wmma",
    stem=STEM,
    title="Both products on the tensor cores",
    kind="core",
    points=20,
    language="cuda",
    entry="kernel",
    name="flash_wmma",
    source="solutions/flash_attention/wmma.cu",
    goal="Mend the sums, whose layout nobody knows, and add weights times values on "
    "the tensor cores.",
    requirements=(
        "Four warps a block, 16 queries each; the sums stay in fp32 fragments.",
        "Row `i` of a warp's sums is multiplied by `mends[warp][i]` before a tile is "
        "added.",
        "Both products run on the tensor cores (HMMA); nothing is stored but out.",
        "Rows of `weights` lie where the rows of `scores` lay: as many bytes apart.",
    ),
    problem=_wmma_problem,
    reference=reference,
    cases=(
        case_of(64, 128, heads=2),
        case_of(70, 77),
        case_of(33, 130),
        case_of(1, 1),
        case_of(64, 192, "rising"),
    ),
    hidden=lambda generator: (
        case for case in hidden_shapes(generator) if case.regime not in ("large", "low")
    ),
    tolerance=HALF_TOLERANCE,
    near_misses=(
        *(
            miss
            for miss in loop_mistakes(WMMA_KEYS, scaled=True, half=True)
            if miss.name == "sum not rescaled"
        ),
        *_STRIPS,
        NearMiss(
            "keys for values",
            lambda arguments: reference({**arguments, "v": arguments["k"]}),
            "The weights are multiplied with the keys: the tile's values begin KEYS "
            "rows further on, at tiles[KEYS].",
        ),
        NearMiss(
            "first 16 keys",
            _first_keys,
            "Of each tile the first 16 keys alone are added: KEYS / 16 products stand "
            "along the keys.",
        ),
    ),
    hints=(
        "All elements of a row get the same factor, and all lanes' fragments of one "
        "shape have the same layout. What if the factors lay in a fragment, too?",
        "kw::Sum mending; wmma::load_matrix_sync(mending, mends[warp], 0, "
        "wmma::mem_col_major) reads element (i, j) at mends[warp][i + 0 * j]: then "
        "strip.sum[d].x[i] *= mending.x[i], for all num_elements.",
        "For n = 0, 16, … below KEYS: load kw::Left<T> p from weights + n, whose rows "
        "are 2 * (KEYS + 4) apart; for each d: kw::Right<T> value from "
        "&tiles[KEYS + n][16 * d] with pitch D + PAD, and wmma::mma_sync(strip.sum[d], "
        "p, value, strip.sum[d]).",
    ),
    onward="How many of its shared-memory wavefronts are scores and weights? The last "
    "rung keeps them in registers.",
    counts=(
        *moves(times=1),
        barriers(5),
        # 64 x 128 scores of 64 numbers, and as much again for the values.
        needed("matrix products", 256),
    ),
    structure=(
        Structure(
            holds=("HMMA",),
            message="The values are right, and no tensor core made them: the machine "
            "code holds no HMMA. Use wmma::mma_sync for weights times values too.",
        ),
    ),
    speed=Speed(
        peer="SDPA (cuDNN)",
        run_peer=_sdpa,
        case=case_of(4096, 4096, heads=32),
        bytes_moved=_bytes,
        flops=_flops,
        unit="half",
        bands={"bronze": 0.10, "silver": 0.15, "gold": 0.20},
    ),
    shares={"correct": 0.6, "counts": 0.2, "speed": 0.2},
)
