"""What known mistakes make of a matrix product, and the sentences that name them."""

from __future__ import annotations

from collections.abc import Callable

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
LAST_TILE = mistake(
    "last tile only",
    lambda a, b: (
        a[:, (a.shape[1] - 1) // TILE * TILE :] @ b[(b.shape[0] - 1) // TILE * TILE :]
        if a.shape[1]
        else a @ b
    ),
    "Every sum holds the products of the last tile alone: the sum must be set to 0 "
    "once, before the loop over the tiles.",
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


def _same_tile(a: torch.Tensor, b: torch.Tensor, stuck: str) -> torch.Tensor:
    """Sum over the tiles along k with one factor's first tile in each."""
    c = a.new_zeros(a.shape[0], b.shape[1])
    for first in range(0, a.shape[1], TILE):
        left, right = a[:, first : first + TILE], b[first : first + TILE]
        if stuck == "a":  # the guard, which is right, lets no more of it in
            left = a[:, : left.shape[1]]
        else:
            right = b[: right.shape[0]]
        c += left @ right
    return c


SAME_TILE = tuple(
    mistake(
        f"{stuck} does not move",
        lambda a, b, stuck=stuck: _same_tile(a, b, stuck),  # type: ignore[misc]
        f"Every round brings the first tile of {stuck} again: its index lacks `first`, "
        f"{index}.",
    )
    for stuck, index in (
        ("a", "a[row * k + first + x]"),
        ("b", "b[(first + y) * n + column]"),
    )
)
TILED = (
    *(FIRST_TILE, LAST_TILE, ROUNDED_DOWN, NOTHING_STORED),
    *(TURNED_TILE, TURNED_A_TILE, ROW_OF_X, COLUMN_OF_Y, *SAME_TILE),
    *(last_product(TILE), *PITCHES),
)
