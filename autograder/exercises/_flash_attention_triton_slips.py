"""Chapter 10's known mistakes in the walks that absorb tiles of keys."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch

from autograder.exercise import NearMiss
from autograder.exercises._flash_attention_triton import TILE
from autograder.exercises._flash_attention_triton_absorb import handed_over
from autograder.exercises._flash_attention_triton_lines import (
    CAUSAL,
    GROUPED,
    Line,
    rows_at,
    slip,
)

# --- flash_triton -----------------------------------------------------------------

_BEGIN = "A head's keys begin at row `head` of memory, its number times n: "


def _from_row(name: str, row: Callable[[int, int, int, Any], int]) -> Line:
    """Load keys or values from a mistaken row: ``row(b, h, kv_heads, t)``."""

    def loaded(t: Any) -> torch.Tensor:
        x = t.held[name]
        batch, heads = x.shape[:2]
        flat = x[:, :: t.group].flatten(0, 2)[None, None]
        rows = []
        for b, h in itertools.product(range(batch), range(heads)):
            begin = row(b, h // t.group, heads // t.group, t)
            at = torch.where(t.cols < t.keys, t.cols + begin, -1)
            rows.append(rows_at(flat, at)[0])
        made: torch.Tensor = torch.cat(rows).unflatten(0, (batch, heads))
        return made

    return loaded


FULL_SLIPS: tuple[NearMiss, ...] = (
    *handed_over({}),
    slip(
        "last tile missing",
        "The last tile of keys is missing: the walk goes from 0 to n.",
        firsts=lambda t: range(0, t.n - TILE, TILE),
    ),
    slip(
        "first tile missing",
        "The first tile of keys is missing: the walk goes from 0 to n.",
        firsts=lambda t: range(TILE, t.n, TILE),
    ),
    slip(
        "every other tile",
        "Every other tile of keys is missing: first moves on by COLS.",
        firsts=lambda t: range(0, t.n, 2 * TILE),
    ),
    slip(
        "steps of half a tile",
        "The tiles overlap, and keys count twice: first moves on by COLS.",
        firsts=lambda t: range(0, t.n, TILE // 2),
    ),
    slip(
        "keys and values of the rows",
        "Each step brings the same keys and values, those at the program's own rows: "
        "they are loaded at cols.",
        k=lambda t: t.at("k", t.rows),
        v=lambda t: t.at("v", t.rows),
    ),
    slip(
        "one key too many",
        "One key past the end takes part: key n does not exist, cols < n.",
        seen=lambda t: t.cols[None, :] <= t.n,
    ),
    slip(
        "seen turned",
        "seen is turned: it has a row for each query and a column for each key, so "
        "cols[None, :] < n.",
        seen=lambda t: t.cols[:, None] < t.n,
    ),
    slip(
        "rows for cols",
        "seen asks which queries there are: hide the keys from n on, cols[None, :] < "
        "n.",
        seen=lambda t: t.rows[None, :] < t.n,
    ),
    slip(
        "causal",
        "This is causal attention: here every query sees all keys up to n.",
        seen=lambda t: t.cols[None, :] <= t.rows[:, None],
    ),
    slip(
        "heads a row apart",
        _BEGIN + "here they lie one row apart.",
        k=_from_row("k", lambda b, h, heads, t: b * heads + h),
        v=_from_row("v", lambda b, h, heads, t: b * heads + h),
    ),
)

# --- flash_triton_causal ----------------------------------------------------------

_WITHIN = (
    "Places within the tile are compared with places within the head: rows and cols "
    "both count from the head's first."
)
CAUSAL_SLIPS: tuple[NearMiss, ...] = (
    # First: what else looks like it shows in an earlier case.
    slip(
        "stop one too early",
        "The last key is missing where it stands alone in its tile: stop is the first "
        "key that nobody sees, min(n, (program + 1) * ROWS), not the last that "
        "somebody does.",
        CAUSAL,
        firsts=lambda t: range(0, min(t.n, t.top + TILE) - 1, TILE),
    ),
    *handed_over(CAUSAL),
    slip(
        "only keys after itself",
        "The mask is upside down: query i sees the keys up to itself, cols <= rows.",
        CAUSAL,
        seen=lambda t: t.cols[None, :] > t.rows[:, None],
    ),
    slip(
        "one key ahead",
        "A query sees the key after its own: the comparison is cols <= rows.",
        CAUSAL,
        seen=lambda t: t.cols[None, :] <= t.rows[:, None] + 1,
    ),
    slip(
        "both within the tile",
        "Every tile is masked like that on the diagonal: rows and cols count from the "
        "head's first, not from the tile's.",
        CAUSAL,
        seen=lambda t: t.tile[None, :] <= t.tile[:, None],
    ),
    slip(
        "cols within the tile",
        _WITHIN,
        CAUSAL,
        seen=lambda t: t.tile[None, :] <= t.rows[:, None],
    ),
    slip(
        "rows within the tile",
        _WITHIN,
        CAUSAL,
        seen=lambda t: t.cols[None, :] <= t.tile[:, None],
    ),
    slip(
        "head in the mask",
        "cols and rows both count within the head: `head` says where it begins in "
        "memory, and has no place in the mask.",
        CAUSAL,
        seen=lambda t: torch.stack(
            [
                t.cols[None, :] + number * t.n <= t.rows[:, None]
                for number in range(t.q.shape[1])
            ]
        ),
    ),
    slip(
        "stop counts tiles",
        "The walk stops within the first tile: stop counts keys, not tiles.",
        CAUSAL,
        firsts=lambda t: range(0, t.top // TILE + 1, TILE),
    ),
    slip(
        "stop before the tile's end",
        "The walk stops where the program's rows begin, or little after: it ends with "
        "the last of them, (program + 1) * ROWS, with those parentheses.",
        CAUSAL,
        firsts=lambda t: range(0, min(t.n, t.top // TILE + TILE), TILE),
    ),
    slip(
        "whole tiles alone",
        "The last keys are missing: n need not be a multiple of COLS.",
        CAUSAL,
        firsts=lambda t: range(0, min(t.n // TILE * TILE, t.top + TILE), TILE),
    ),
)

# --- flash_gqa --------------------------------------------------------------------


def _begun(
    name: str, message: str, row: Callable[[int, int, int, Any], int]
) -> NearMiss:
    """Return the mistake in which a KV head's keys are looked for elsewhere."""
    return slip(name, message, GROUPED, k=_from_row("k", row), v=_from_row("v", row))


_WHERE = (
    " There are batch * kv_heads heads of `keys` rows each: this one's begin at (b * "
    "kv_heads + its number) * keys."
)
_OLDER_ONLY = (
    "The walk stops too early: the program's last query is row (program + 1) * ROWS - "
    "1, and sees `ahead` keys more than that; there are `keys` of them."
)
_ONE_AHEAD = (
    "A query sees the key after its own token: the comparison is cols <= rows + ahead, "
    "with ahead = keys - n."
)


def _with_one_more(t: Any) -> torch.Tensor:
    seen: torch.Tensor = t.cols[None, :] <= t.rows[:, None] + t.ahead + 1
    seen &= t.cols[None, :] < t.keys
    return seen


GROUPED_SLIPS: tuple[NearMiss, ...] = (
    # First: what else looks like it shows in an earlier case.
    slip(
        "stop one too early",
        "The last key is missing where it stands alone in its tile: stop is the first "
        "key that nobody sees, not the last that somebody does.",
        GROUPED,
        firsts=lambda t: range(0, min(t.keys, t.top + TILE + t.ahead) - 1, TILE),
    ),
    *handed_over(GROUPED),
    slip(
        "one key ahead",
        _ONE_AHEAD,
        GROUPED,
        seen=_with_one_more,
    ),
    slip(
        "one key ahead, and loaded",
        _ONE_AHEAD,
        GROUPED,
        firsts=lambda t: range(0, min(t.keys, t.top + TILE + t.ahead + 1), TILE),
        seen=_with_one_more,
    ),
    slip(
        "full attention in the seen tiles",
        "This is full attention up to `stop`: query i also sees keys after token keys "
        "- n + i.",
        GROUPED,
        seen=lambda t: t.cols[None, :] < t.keys,
    ),
    slip(
        "older tokens alone",
        "A query sees the older tokens alone: those of this call up to its own too, "
        "cols <= rows + ahead.",
        GROUPED,
        seen=lambda t: (t.cols[None, :] <= t.ahead) & (t.rows[:, None] >= 0),
    ),
    slip(
        "seen turned",
        "The mask is turned: seen has a row for each query and a column for each key, "
        "cols[None, :] <= rows[:, None] + ahead.",
        GROUPED,
        seen=lambda t: (t.cols[:, None] <= t.rows[None, :] + t.ahead)
        & (t.cols[None, :] < t.keys),
    ),
    slip(
        "as many keys as queries",
        "Keys from n on are left out: n counts queries, and there are `keys` keys.",
        GROUPED,
        firsts=lambda t: range(0, min(t.n, t.top + TILE + t.ahead), TILE),
        seen=lambda t: (t.cols[None, :] <= t.rows[:, None] + t.ahead)
        & (t.cols[None, :] < max(t.n, -(-t.n // TILE) * TILE)),
    ),
    slip(
        "keys from n on hidden",
        "Keys from n on are hidden: n counts queries, and there are `keys` keys.",
        GROUPED,
        seen=lambda t: (t.cols[None, :] <= t.rows[:, None] + t.ahead)
        & (t.cols[None, :] < t.n),
    ),
    slip(
        "stops with the older tokens",
        _OLDER_ONLY,
        GROUPED,
        firsts=lambda t: range(0, t.ahead, TILE),
    ),
    slip(
        "stops where the rows begin",
        _OLDER_ONLY,
        GROUPED,
        firsts=lambda t: range(0, min(t.keys, t.top + t.ahead), TILE),
    ),
    slip(
        "begun with the new tokens",
        "The walk begins with the new tokens: every query sees the older ones too, "
        "from key 0 on.",
        GROUPED,
        firsts=lambda t: range(t.ahead, min(t.keys, t.top + TILE + t.ahead), TILE),
    ),
    slip(
        "zeros from n in k",
        "Keys from n on are loaded as zeros: there are `keys` of them, and that is "
        "where load_rows stops.",
        GROUPED,
        k=lambda t: t.at("k", torch.where(t.cols < t.n, t.cols, -1)),
    ),
    slip(
        "zeros from n in v",
        "Values from n on are loaded as zeros: there are `keys` of them, and that is "
        "where load_rows stops.",
        GROUPED,
        v=lambda t: t.at("v", torch.where(t.cols < t.n, t.cols, -1)),
    ),
    _begun(
        "heads a row apart",
        "The keys are taken from the row of the head's number." + _WHERE,
        lambda b, h, heads, t: b * heads + h,
    ),
    _begun(
        "heads n rows apart",
        "KV heads are taken to be n rows apart, and are `keys` apart." + _WHERE,
        lambda b, h, heads, t: (b * heads + h) * t.n,
    ),
    _begun(
        "batches a head apart",
        "Batches are taken to be one head apart." + _WHERE,
        lambda b, h, heads, t: (b + h) * t.keys,
    ),
    _begun(
        "batches rows apart",
        "Batches are taken to be kv_heads rows apart." + _WHERE,
        lambda b, h, heads, t: b * heads + h * t.keys,
    ),
)
