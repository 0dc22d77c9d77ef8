"""Chapter 6: what goes wrong with sixteen sums a thread, and how it is named."""

from __future__ import annotations

import torch

from autograder.exercises._matmul_mistakes import mistake, rearranged, right, written

# Where row i of 64 comes from, when thread y stores to rows 4 * y + r what it summed
# for rows y + 16 * r.
_SPREAD = torch.arange(64) % 4 * 16 + torch.arange(64) // 4


def _squares_turned(c: torch.Tensor) -> torch.Tensor:
    """Exchange r and s of element (y + 16 r, x + 16 s)."""
    return c.reshape(4, 16, 4, 16).transpose(0, 2).reshape(64, 64)


def _threads_turned(c: torch.Tensor) -> torch.Tensor:
    """Exchange x and y of element (y + 16 r, x + 16 s)."""
    return c.reshape(4, 16, 4, 16).transpose(1, 3).reshape(64, 64)


def _one_index(c: torch.Tensor) -> torch.Tensor:
    """Take down[r] * across[r] for every s."""
    squares = c.reshape(4, 16, 4, 16)
    same = torch.stack([squares[r, :, r] for r in range(4)])
    return same[:, :, None].expand(4, 16, 4, 16).reshape(64, 64)


def _other_index(c: torch.Tensor) -> torch.Tensor:
    """Take down[s] * across[s] for every r."""
    return _one_index(c.T).T


def _rows_by_x(c: torch.Tensor) -> torch.Tensor:
    """Take rows x + 16 * r of a: thread (x, y) sums for rows and columns of x."""
    of_x = c.reshape(4, 16, 4, 16).diagonal(dim1=1, dim2=3)  # r, s, x
    return of_x[:, None].expand(4, 16, 4, 16).reshape(64, 64)


def _columns_by_y(c: torch.Tensor) -> torch.Tensor:
    """Take columns y + 16 * s of b: thread (x, y) sums for rows and columns of y."""
    return _rows_by_x(c.T).T


# Where row y + 16 * r comes from, when a thread loads rows 4 * y + r.
_GATHERED = torch.arange(64) % 16 * 4 + torch.arange(64) // 16
_AS_IT_IS = torch.arange(64)

REGISTERS = (
    mistake(
        "one sum a thread",
        written(right, lambda row, column: (row % 64 < 16) & (column % 64 < 16)),
        "Of each 64 x 64 elements only the first 16 x 16 are written: a thread stores "
        "all of its sixteen sums.",
    ),
    mistake(
        "neighbours stored",
        rearranged(64, lambda c: c[_SPREAD][:, _SPREAD]),
        "The sums are right and stand in another place: they were computed for rows "
        "y + 16 * r and stored to rows 4 * y + r.",
    ),
    *(
        mistake(
            f"neighbours loaded, {which}",
            rearranged(
                64,
                lambda c, rows=rows, columns=columns: c[rows][:, columns],  # type: ignore[misc]
            ),
            f"The sums are right and stand in another place: {which} {index} were "
            f"loaded, and the sums are stored to {which} {stored}.",
        )
        for which, index, stored, rows, columns in (
            ("rows", "4 * y + r", "y + 16 * r", _GATHERED, _AS_IT_IS),
            ("columns", "4 * x + s", "x + 16 * s", _AS_IT_IS, _GATHERED),
            (
                *("rows and columns", "4 * y + r, 4 * x + s", "y + 16 * r, x + 16 * s"),
                *(_GATHERED, _GATHERED),
            ),
        )
    ),
    mistake(
        "turned on the way",
        rearranged(64, _squares_turned),
        "Each thread's square of sums is turned: sums[r][s] belongs to its row r and "
        "its column s.",
    ),
    mistake(
        "threads turned",
        rearranged(64, _threads_turned),
        "x and y are exchanged: a thread loads rows x + 16 * r of a and columns "
        "y + 16 * s of b, and stores to rows y + 16 * r.",
    ),
    mistake(
        "one index for both",
        rearranged(64, _one_index),
        "A row's four sums are alike: sums[r][s] takes across[r], and needs across[s].",
    ),
    mistake(
        "the other index for both",
        rearranged(64, _other_index),
        "A column's four sums are alike: sums[r][s] takes down[s], and needs down[r].",
    ),
    mistake(
        "rows by x",
        rearranged(64, _rows_by_x),
        "down is loaded from rows x + 16 * r, and x counts columns: a thread's rows "
        "are y + 16 * r.",
    ),
    mistake(
        "columns by y",
        rearranged(64, _columns_by_y),
        "across is loaded from columns y + 16 * s, and y counts rows: a thread's "
        "columns are x + 16 * s.",
    ),
    mistake(
        "four apart",
        written(right, lambda row, column: (row % 64 < 28) & (column % 64 < 28)),
        "Of each 64 x 64 elements only the first 28 x 28 are written: there are 16 "
        "threads a side, so a thread's rows and columns lie 16 apart, not 4.",
    ),
)
