"""Chapter 7's mistakes of an index: what a fragment holds instead of its own part."""

from __future__ import annotations

from collections.abc import Callable

import torch

from autograder.drawing import tensor
from autograder.exercise import Arguments, NearMiss, Outputs
from autograder.exercises._tensor_cores import (
    columns_kept,
    in_blocks,
    matrices,
    product_of,
)

Index = Callable[[torch.Tensor], torch.Tensor]
DEPTH = 64  # of a tile along k
WIDTH = 128  # of a tile along m and n
PAD = 8  # halves at the end of a padded row


def _taken(x: torch.Tensor, dim: int, at: Index | None) -> torch.Tensor:
    if at is None:
        return x
    return x.index_select(dim, at(torch.arange(x.shape[dim], device=x.device)))


def read_from(
    *,
    rows: Index | None = None,
    columns: Index | None = None,
    along_a: Index | None = None,
    along_b: Index | None = None,
) -> Callable[[Arguments], Outputs]:
    """Return the mistake that finds other rows or columns where it looks for its own.

    Args:
        rows: from the rows of A that should be multiplied to those that are.
        columns: the same for the columns of B.
        along_a: the same for the columns of A.
        along_b: the same for the rows of B.
    """
    return product_of(
        lambda a, b: (
            _taken(_taken(a, 0, rows), 1, along_a),
            _taken(_taken(b, 0, along_b), 1, columns),
        )
    )


def _first(size: int, period: int) -> Index:
    """Return the index that finds the first ``size`` of every ``period``."""
    return lambda at: at // period * period + at % size


# --- wmma_tile --------------------------------------------------------------------


def _at_pitch(x: torch.Tensor, pitch: int) -> torch.Tensor:
    """Return what 16 x 16 fragments hold whose rows are read ``pitch`` apart."""
    rows, columns = x.shape
    r, c = torch.arange(rows)[:, None], torch.arange(columns)
    read = r // 16 * 16 * columns + r % 16 * pitch + c
    return x.flatten()[read.clamp(max=max(0, x.numel() - 1)).to(x.device)]


def _row_as_elements(a: torch.Tensor) -> torch.Tensor:
    """Return what is read where a tile begins ``row`` elements after A does."""
    rows, columns = a.shape
    r, c = torch.arange(rows)[:, None], torch.arange(columns)
    read = r // 16 * 16 + r % 16 * columns + c
    return a.flatten()[read.clamp(max=max(0, a.numel() - 1)).to(a.device)]


def _product(arguments: Arguments) -> torch.Tensor:
    a, b = matrices(arguments)
    return a @ b


ONE_TILE = (
    NearMiss(
        "sum never begun",
        # So the emulator begins an accumulator; on a GPU it may be any number.
        lambda arguments: {"c": torch.full_like(_product(arguments), torch.nan)},
        "c is NaN all over: the first product is added to a `sum` in which nothing was "
        "put. A fragment is registers, and what they hold before is anything: fill it "
        "with zeros before the loop.",
    ),
    NearMiss(
        "first step",
        columns_kept(lambda at, k: at < 16),
        "c holds the sums over the first 16 of k only: step along k, 16 at a time, "
        "and add each product to `sum`.",
    ),
    NearMiss(
        "last step",
        columns_kept(lambda at, k: at >= k - 16),
        "c holds the sums over the last 16 of k only: `sum` is cleared in every "
        "step. Fill it with zeros once, before the loop.",
    ),
    NearMiss(
        "last step missing",
        columns_kept(lambda at, k: at < k - 16),
        "The last 16 of k are missing: the loop goes on while i is below k.",
    ),
    NearMiss(
        "first step missing",
        columns_kept(lambda at, k: at >= 16),
        "The first 16 of k are missing: the loop begins at i = 0.",
    ),
    NearMiss(
        "both stand still",
        read_from(along_a=lambda at: at % 16, along_b=lambda at: at % 16),
        "Every step multiplies the same two tiles: i, which counts the steps, stands "
        "in neither address. From step to step a's tile moves on by 16 columns and "
        "b's down by 16 rows.",
    ),
    NearMiss(
        "a stands still",
        read_from(along_a=lambda at: at % 16),
        "Every step multiplies the same 16 columns of a: from step to step its tile "
        "moves on by 16 columns, 16 elements.",
    ),
    NearMiss(
        "b stands still",
        read_from(along_b=lambda at: at % 16),
        "Every step multiplies the same 16 rows of b: from step to step its tile "
        "moves down by 16 rows, 16 * n elements.",
    ),
    NearMiss(
        "first rows of a",
        read_from(rows=lambda at: at % 16),
        "Every block multiplies the first 16 rows of a: its own begin at row `row`, "
        "which is element row * k.",
    ),
    NearMiss(
        "row not times k",
        product_of(lambda a, b: (_row_as_elements(a), b)),
        "The tile of a begins `row` elements after a does, not `row` rows: rows are k "
        "elements long, so it is a + row * k + i.",
    ),
    NearMiss(
        "first columns of b",
        read_from(columns=lambda at: at % 16),
        "Every block multiplies the first 16 columns of b: its own begin at `column`.",
    ),
    NearMiss(
        "b turned",
        product_of(lambda a, b: (a, in_blocks(b, 16, lambda t: t.mT))),
        "Each 16 x 16 tile of b is multiplied transposed: b is stored by rows, so "
        "its fragment is declared wmma::row_major.",
    ),
    NearMiss(
        "pitch of a tile",
        product_of(lambda a, b: (_at_pitch(a, 16), b)),
        "The rows of a's tile are read 16 elements apart. The last argument of "
        "load_matrix_sync is the pitch of the whole matrix: k for a, n for b.",
    ),
    NearMiss(
        "pitch of a tile in b",
        product_of(lambda a, b: (a, _at_pitch(b, 16))),
        "The rows of b's tile are read 16 elements apart. The last argument of "
        "load_matrix_sync is the pitch of the whole matrix: k for a, n for b.",
    ),
    NearMiss(
        "pitch of a tile in both",
        product_of(lambda a, b: (_at_pitch(a, 16), _at_pitch(b, 16))),
        "The rows of both tiles are read 16 elements apart, as if a tile lay by "
        "itself. The last argument of load_matrix_sync is the pitch of the whole "
        "matrix: k for a, n for b.",
    ),
)

# --- parts of a tile in shared memory ---------------------------------------------


def parts_of_a_tile(rows: int, columns: int) -> tuple[NearMiss, ...]:
    """Return the mistakes of taking another warp's or another step's part.

    Args:
        rows: of C that a warp makes.
        columns: the same across.
    """
    return (
        NearMiss(
            "row forgotten",
            read_from(rows=_first(rows, WIDTH)),
            f"All warps multiply the first {rows} rows of the tile of a: a warp's own "
            "begin at `row`.",
        ),
        NearMiss(
            "column forgotten",
            read_from(columns=_first(columns, WIDTH)),
            f"All warps multiply the first {columns} columns of the tile of b: a "
            "warp's own begin at `column`.",
        ),
        NearMiss(
            "step forgotten in a",
            read_from(along_a=_first(16, DEPTH)),
            "All four steps multiply the first 16 columns of the tile of a: step j "
            "begins at column j.",
        ),
        NearMiss(
            "step forgotten in b",
            read_from(along_b=_first(16, DEPTH)),
            "All four steps multiply the first 16 rows of the tile of b: step j begins "
            "at row j.",
        ),
        NearMiss(
            "step forgotten in both",
            read_from(along_a=_first(16, DEPTH), along_b=_first(16, DEPTH)),
            "All four steps multiply the first 16 columns of the tile of a with the "
            "first 16 rows of that of b: j stands in neither address.",
        ),
        NearMiss(
            "fragments a row apart",
            read_from(rows=lambda at: at - at % rows + at % rows // 16 + at % 16),
            "The fragments of a begin one row apart, and each is 16 rows high: "
            "fragment r begins at row + 16 * r.",
        ),
    )


# --- wmma_gemm --------------------------------------------------------------------


def _tile_at_pitch(x: torch.Tensor, tile: tuple[int, int], pitch: int) -> torch.Tensor:
    """Return what is read of padded tiles whose rows are taken for ``pitch`` apart."""
    if not x.numel():
        return x
    high, wide = tile
    down, across = x.shape[0] // high, x.shape[1] // wide
    blocks = x.view(down, high, across, wide).transpose(1, 2)
    # Nobody writes the padding: the emulator's shared memory holds NaN there.
    padded = torch.nn.functional.pad(blocks, (0, PAD), value=torch.nan).flatten(2)
    r, c = torch.arange(high)[:, None], torch.arange(wide)
    read = (r // 16 * 16 * (wide + PAD) + r % 16 * pitch + c).to(x.device)
    return padded[..., read].transpose(1, 2).reshape(x.shape)


def _pitched(left: int, right: int) -> Callable[[Arguments], Outputs]:
    return product_of(
        lambda a, b: (
            _tile_at_pitch(a, (WIDTH, DEPTH), left),
            _tile_at_pitch(b, (DEPTH, WIDTH), right),
        )
    )


_LEFT, _RIGHT = DEPTH + PAD, WIDTH + PAD
PITCHES = tuple(
    NearMiss(
        f"pitch {left}, {right}",
        _pitched(left, right),
        f"The padding is read: {words}. The last argument of load_matrix_sync is how "
        "far the padded rows lie apart, DEPTH + PAD in left and 128 + PAD in right.",
    )
    for left, right, words in (
        (DEPTH, _RIGHT, "the rows of left are taken for 64 halves apart"),
        (_LEFT, WIDTH, "the rows of right are taken for 128 halves apart"),
        (_LEFT, _LEFT, "the rows of right are taken for as short as those of left"),
        (DEPTH, WIDTH, "rows are taken for as far apart as they are wide"),
    )
)

# --- mma_sync_gemm ----------------------------------------------------------------


def _place(row: torch.Tensor, column: torch.Tensor, width: int) -> torch.Tensor:
    """Return what kw::swizzled does."""
    return row * width + (column // 8 ^ row % 8) * 8 + column % 8


def _read_at(
    x: torch.Tensor,
    tile: tuple[int, int],
    place: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> torch.Tensor:
    """Return what stands at ``place(row, column)`` of tiles that lie swizzled."""
    if not x.numel():
        return x
    high, wide = tile
    down, across = x.shape[0] // high, x.shape[1] // wide
    blocks = x.view(down, high, across, wide).transpose(1, 2).flatten(2)
    r, c = torch.arange(high)[:, None], torch.arange(wide)
    memory = torch.empty_like(blocks)
    memory[..., _place(r, c, wide).flatten()] = blocks
    return memory[..., place(r, c)].transpose(1, 2).reshape(x.shape)


def _as_it_lies(x: torch.Tensor, tile: tuple[int, int]) -> torch.Tensor:
    return _read_at(x, tile, lambda r, c: r * tile[1] + c)


_A, _B = (WIDTH, DEPTH), (DEPTH, WIDTH)
_ASK = (
    "The copy put its groups where kw::swizzled says, so the address of a row comes "
    "from kw::swizzled, too."
)

SWIZZLED = (
    NearMiss(
        "neither read swizzled",
        product_of(lambda a, b: (_as_it_lies(a, _A), _as_it_lies(b, _B))),
        f"Both tiles are read as if they were not swizzled. {_ASK}",
    ),
    NearMiss(
        "a not read swizzled",
        product_of(lambda a, b: (_as_it_lies(a, _A), b)),
        f"The tile of a is read as if it were not swizzled. {_ASK}",
    ),
    NearMiss(
        "b not read swizzled",
        product_of(lambda a, b: (a, _as_it_lies(b, _B))),
        f"The tile of b is read as if it were not swizzled. {_ASK}",
    ),
    NearMiss(
        "b taken for 64 wide",
        product_of(lambda a, b: (a, _read_at(b, _B, lambda r, c: _place(r, c, DEPTH)))),
        "The tile of b is read as if its rows were 64 halves long: they are 128, the "
        "last argument of kw::swizzled.",
    ),
)
HALVES_OF_A_FRAGMENT = (
    NearMiss(
        "upper half of a twice",
        read_from(rows=_first(8, 16)),
        "In each 16 x 16 of a, rows 8 to 15 repeat rows 0 to 7: 16 lanes name 16 rows, "
        "so it is lane % 16.",
    ),
    NearMiss(
        "left half of a twice",
        read_from(along_a=_first(8, 16)),
        "In each 16 x 16 of a, columns 8 to 15 repeat columns 0 to 7: lanes 16 to 31 "
        "name the same rows eight columns further on, lane / 16 * 8.",
    ),
    NearMiss(
        "upper half of b twice",
        read_from(along_b=_first(8, 16)),
        "In each 16 x 16 of b, rows 8 to 15 repeat rows 0 to 7: 16 lanes name 16 rows, "
        "so it is lane % 16.",
    ),
    NearMiss(
        "left half of b twice",
        read_from(columns=_first(8, 16)),
        "In each 16 x 16 of c, columns 8 to 15 repeat columns 0 to 7. Either lanes 16 "
        "to 31 do not name b's rows eight columns further on, lane / 16 * 8; or both "
        "products of a load take registers 0 and 1, where the second takes 2 and 3.",
    ),
    NearMiss(
        "loads of b eight apart",
        read_from(columns=lambda at: at - at % 64 + at % 64 // 16 * 8 + at % 16),
        "The loads of b begin eight columns apart, and each brings 16, two products "
        "wide: load s begins at column + 16 * s.",
    ),
)

# --- gemm_pipelined, gemm_half ----------------------------------------------------


def _nothing_but_nan(arguments: Arguments) -> Outputs:
    a, b = matrices(arguments)
    c = torch.full((a.shape[0], b.shape[1]), torch.nan, dtype=a.dtype)
    return {"c": c if tensor(arguments, "a").numel() else torch.zeros_like(c)}


TOO_EARLY = NearMiss(
    "multiplied too early",
    _nothing_but_nan,
    "A barrier alone does not mend it where there is one: a stage is multiplied that "
    "its tile has not reached, or has already left to another. Three things must "
    "agree. Tile t lies in stage t % STAGES, and a stage is 2 * TILE halves long. "
    "Round t sends for tile t + STAGES - 1. And when round t waits, one group for each "
    "tile up to t + STAGES - 2 was committed, each by itself: "
    "kw::cp_async_wait<STAGES - 2>() then leaves open only those behind tile t.",
)
