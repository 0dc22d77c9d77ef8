"""What known mistakes make of a matrix product, and the sentences that name them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from autograder.exercise import Arguments, NearMiss, Outputs
from autograder.exercises._matmul import TILE, operands

Product = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def mistake(name: str, product: Product, message: str) -> NearMiss:
    """Return the near miss that writes ``product(a, b)``, in c's order of elements."""

    def output(arguments: Arguments) -> Outputs:
        a, b = operands(arguments)
        # The very shape of c: what is stored in another order shows as other values.
        return {"c": product(a, b).reshape(a.shape[0], b.shape[1])}

    return NearMiss(name, output, message)


def written(product: Product, keep: Callable[..., torch.Tensor]) -> Product:
    """Keep elements of a product where ``keep(row, column)``; NaN: never written."""

    def some(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        c = product(a, b)
        row = torch.arange(c.shape[0])[:, None]
        column = torch.arange(c.shape[1])[None, :]
        return torch.where(keep(row, column).expand_as(c), c, torch.nan)

    return some


def right(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return the product."""
    return a @ b


def filled_up(a: torch.Tensor, b: torch.Tensor, tile: int) -> tuple[torch.Tensor, ...]:
    """Fill a and b up with zeros to whole tiles, as a kernel's guards do."""
    (m, k), n = a.shape, b.shape[1]
    up_m, up_n, up_k = (-(-size // tile) * tile for size in (m, n, k))
    wide_a, wide_b = a.new_zeros(up_m, up_k), b.new_zeros(up_k, up_n)
    wide_a[:m, :k], wide_b[:k, :n] = a, b
    return wide_a, wide_b


def by_tiles(tile: int, product: Product) -> Product:
    """Sum ``product`` over the tiles along k."""

    def summed(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        wide_a, wide_b = filled_up(a, b, tile)
        c = a.new_zeros(wide_a.shape[0], wide_b.shape[1])
        for i in range(0, c.shape[0], tile):
            for j in range(0, c.shape[1], tile):
                for along in range(0, wide_a.shape[1], tile):
                    left = wide_a[i : i + tile, along : along + tile]
                    right = wide_b[along : along + tile, j : j + tile]
                    c[i : i + tile, j : j + tile] += product(left, right)
        return c[: a.shape[0], : b.shape[1]]

    return summed


def rearranged(side: int, change: Callable[[torch.Tensor], torch.Tensor]) -> Product:
    """Change every side x side square of the right product, edges filled up."""

    def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        wide_a, wide_b = filled_up(a, b, side)
        c = wide_a @ wide_b
        for i in range(0, c.shape[0], side):
            for j in range(0, c.shape[1], side):
                c[i : i + side, j : j + side] = change(c[i : i + side, j : j + side])
        return c[: a.shape[0], : b.shape[1]]

    return product


def last_product(tile: int = 1) -> NearMiss:
    """Return the mistake of a sum that does not grow, over tiles filled up with 0."""

    def last(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        wide_a, wide_b = filled_up(a, b, tile)
        return (wide_a[:, -1:] @ wide_b[-1:])[: a.shape[0], : b.shape[1]]

    return mistake(
        "last product only",
        last,
        "Each element of c is its last product alone: inside the loop the sum is "
        "replaced (=) where it must grow (+=).",
    )


ONE_SHORT = mistake(
    "loop one short",
    lambda a, b: a[:, :-1] @ b[:-1],
    "The last product of every sum is missing: i goes from 0 to k - 1.",
)
FIRST_LEFT_OUT = mistake(
    "loop from one",
    lambda a, b: a[:, 1:] @ b[1:],
    "The first product of every sum is missing: i begins at 0.",
)
NOTHING_STORED = mistake(
    "nothing to add",
    lambda a, b: a @ b if a.shape[1] else (a @ b).fill_(torch.nan),
    "With k = 0 nothing is stored: a sum of no products is 0. Store behind the loop, "
    "not in it.",
)
TURNED_A = mistake(
    "a by columns",
    lambda a, b: a.reshape(a.shape[1], a.shape[0]).T @ b,
    "a is read as if its columns lay side by side: element (row, i) of a is at "
    "a[row * k + i].",
)
TURNED_B = mistake(
    "b by columns",
    lambda a, b: a @ b.reshape(b.shape[1], b.shape[0]).T,
    "b is read as if its columns lay side by side: element (i, column) of b is at "
    "b[i * n + column].",
)
TURNED_C = mistake(
    "c by columns",
    lambda a, b: (a @ b).T,
    "c holds the right sums by columns: element (row, column) goes to "
    "c[row * n + column].",
)
PITCHES = (TURNED_A, TURNED_B, TURNED_C)
SUMS = (last_product(), ONE_SHORT, FIRST_LEFT_OUT, NOTHING_STORED, *PITCHES)
FIRST_TILE = mistake(
    "first tile only",
    lambda a, b: a[:, :TILE] @ b[:TILE],
    "Every sum ends after the first 32 products: the tiles do not move on along k.",
)


def last_tile(tile: int) -> NearMiss:
    """Return the mistake of sums that begin anew with every tile."""

    def last(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        first = max(0, a.shape[1] - 1) // tile * tile
        return a[:, first:] @ b[first:]

    return mistake(
        "last tile only",
        last,
        "Every sum holds the products of the last tile alone: the sum must be set to 0 "
        "once, before the loop over the tiles.",
    )


def one_short(tile: int) -> NearMiss:
    """Return the mistake of an inner loop that ends one step before the tile does."""
    return mistake(
        "tile one short",
        by_tiles(tile, lambda left, right: left[:, :-1] @ right[:-1]),
        f"The last product of every tile is missing: the loop inside the tile makes "
        f"{tile} steps, while i < {tile}.",
    )


ROUNDED_DOWN = mistake(
    "k rounded down to tiles",
    lambda a, b: a[:, : a.shape[1] // TILE * TILE] @ b[: b.shape[0] // TILE * TILE],
    "The products past the last whole tile of 32 are missing: the loop must go on "
    "while first < k.",
)
TURNED_TILE = mistake(
    "b's tile turned",
    by_tiles(TILE, lambda left, right: left @ right.T),
    "Inside every tile b is turned: the sum needs b_tile[i][x], row i and the "
    "thread's own column.",
)
TURNED_A_TILE = mistake(
    "a's tile turned",
    by_tiles(TILE, lambda left, right: left.T @ right),
    "Inside every tile a is turned: x runs along a row of a, so thread (x, y) brings "
    "a_tile[y][x], and reads a_tile[y][i].",
)
ROW_OF_X = mistake(
    "a's row by x",
    by_tiles(TILE, lambda left, right: (left @ right).diagonal().expand(len(left), -1)),
    "All rows of a tile of c are alike: the sum takes row x of a_tile, where the "
    "thread's row is y: a_tile[y][i].",
)
COLUMN_OF_Y = mistake(
    "b's column by y",
    by_tiles(
        TILE, lambda left, right: (left @ right).diagonal()[:, None].expand_as(right)
    ),
    "All columns of a tile of c are alike: the sum takes column y of b_tile, where "
    "the thread's column is x: b_tile[i][x].",
)


def same_tile(tile: int, stuck: str, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Sum over the tiles along k with one factor's first tile in each."""
    c = a.new_zeros(a.shape[0], b.shape[1])
    for first in range(0, a.shape[1], tile):
        left, right = a[:, first : first + tile], b[first : first + tile]
        if stuck == "a":  # the guard, which is right, lets no more of it in
            left = a[:, : left.shape[1]]
        else:
            right = b[: right.shape[0]]
        c += left @ right
    return c


SAME_TILE = tuple(
    mistake(
        f"{stuck} does not move",
        partial(same_tile, TILE, stuck),
        f"Every round brings the first tile of {stuck} again: its index lacks `first`, "
        f"{index}.",
    )
    for stuck, index in (
        ("a", "a[row * k + first + x]"),
        ("b", "b[(first + y) * n + column]"),
    )
)


def _without_brackets(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Read b[first + y * n + column]: each tile of b one element further on."""
    (k, n), flat = b.shape, b.flatten()
    wide_a, _ = filled_up(a, b, TILE)
    c = a.new_zeros(a.shape[0], n)
    for first in range(0, k, TILE):
        rows = torch.arange(min(TILE, k - first))[:, None]
        read = flat[first + rows * n + torch.arange(n)]
        c += wide_a[:, first : first + TILE][: len(c), : len(read)] @ read
    return c


NO_BRACKETS = mistake(
    "no brackets",
    _without_brackets,
    "The tiles of b move along a row of it, where they must move down: brackets are "
    "missing, b[(first + y) * n + column].",
)


def _threads_exchanged(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    # Thread (x, y) brings a[x][x] and b[y][y]: all have the same sum.
    return (left.diagonal() * right.diagonal()).sum().expand(len(left), len(left))


THREADS_EXCHANGED = mistake(
    "threads exchanged",
    by_tiles(TILE, _threads_exchanged),
    "All elements of a tile of c are alike: the row goes with x and the column with y. "
    "Let x run along a row: row = blockIdx.y * 32 + y, column = blockIdx.x * 32 + x.",
)


def blocks_exchanged(side: int) -> NearMiss:
    """Return what is written where blockIdx.x counts rows and blockIdx.y columns."""

    def some(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        rows, columns = (-(-size // side) * side for size in (b.shape[1], a.shape[0]))
        keep = written(right, lambda row, column: (row < rows) & (column < columns))
        return keep(a, b)

    return mistake(
        "blocks exchanged",
        some,
        "The blocks are exchanged: `blockIdx.x` belongs to the column, and "
        "`blockIdx.y` to the row.",
    )


TILED = (
    *(FIRST_TILE, last_tile(TILE), ROUNDED_DOWN, NOTHING_STORED, one_short(TILE)),
    *(TURNED_TILE, TURNED_A_TILE, ROW_OF_X, COLUMN_OF_Y, *SAME_TILE),
    *(NO_BRACKETS, THREADS_EXCHANGED, blocks_exchanged(TILE)),
    *(last_product(TILE), *PITCHES),
)
