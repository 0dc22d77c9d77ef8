"""Chapter 10's known mistakes in the walk that gathers gradients."""

from __future__ import annotations

from autograder.exercise import Arguments, NearMiss, Outputs
from autograder.exercises._flash_attention_triton import TILE
from autograder.exercises._flash_attention_triton_bends import (
    having,
)
from autograder.exercises._flash_attention_triton_lines import (
    Line,
    bent,
    gathered,
    half,
    hidden,
)


def _of_head_0(name: str, at: str = "rows") -> Line:
    return lambda t: t.at(name, getattr(t, at))[:, :1].expand(-1, t.k.shape[1], -1, -1)


def _dq_of_one_tile_of_keys(arguments: Arguments) -> Outputs:
    """Return what is left where each program stores dq over the one before."""
    own = gathered(arguments, firsts=lambda t: range(t.mine, t.mine + TILE, TILE))
    return {**gathered(arguments), "dq": own["dq"]}


_AT_HEAD = " of head 0 serve every head: this program's own begin at `head`."
_OTHER = " take the place of this tile's: "
BACKWARD_BENDS: tuple[NearMiss, ...] = (
    bent(
        "own key hidden",
        "A query does not see its own key: the comparison is cols <= rows.",
        seen=lambda t: (t.cols[None, :] < t.rows[:, None]) & (t.rows[:, None] < t.n),
    ),
    NearMiss(
        "dq stored",
        _dq_of_one_tile_of_keys,
        "dq holds what one tile of keys gave it, alone: many programs have a part of "
        "the same rows. Add, tl.atomic_add, where each stores over the others.",
    ),
    bent(
        "own tile alone",
        "A program's keys meet the queries of its own tile alone: all later ones see "
        "them too, up to n.",
        firsts=lambda t: range(t.mine, t.mine + TILE, TILE),
    ),
    bent(
        "own tile missing",
        "The tile on the diagonal is missing: query `mine` sees key `mine`, so the "
        "walk begins there.",
        firsts=lambda t: range(t.mine + TILE, t.n, TILE),
    ),
    bent(
        "whole tiles alone",
        "The last queries are missing: n need not be a multiple of ROWS.",
        firsts=lambda t: range(t.mine, t.n // TILE * TILE, TILE),
    ),
    bent(
        "last tile missing",
        "The last tile of queries is missing: the walk goes up to n.",
        firsts=lambda t: range(t.mine, t.n - TILE, TILE),
    ),
    bent(
        "last query missing",
        "The last query is missing where it stands alone in its tile: the walk goes up "
        "to n.",
        firsts=lambda t: range(t.mine, t.n - 1, TILE),
    ),
    bent(
        "every other tile",
        "Every other tile of queries is missing: first moves on by ROWS.",
        firsts=lambda t: range(t.mine, t.n, 2 * TILE),
    ),
    bent(
        "a tile a query",
        "The tiles overlap, and queries count many times: first moves on by ROWS.",
        firsts=lambda t: range(t.mine, t.n),
    ),
    bent(
        "first rows each time",
        "Each step takes the first tile of queries: rows begins at `first`.",
        rows=lambda t: t.tile,
    ),
    bent(
        "own rows each time",
        "Each step takes the queries that lie where the program's keys do: rows begins "
        "at `first`.",
        rows=lambda t: t.mine + t.tile,
    ),
    bent(
        "queries at cols",
        "q is loaded at cols: queries lie at rows.",
        q=lambda t: t.at("q", t.cols),
    ),
    bent(
        "dO at cols",
        "grad is loaded at cols: it belongs to queries, at rows.",
        grad=lambda t: t.at("grad", t.cols),
    ),
    bent(
        "lse at cols",
        "lse is loaded at cols: it belongs to queries, at rows.",
        lse=lambda t: t.at("lse", t.cols),
    ),
    bent(
        "dot at cols",
        "dot is loaded at cols: it belongs to queries, at rows.",
        dot=lambda t: t.at("dot", t.cols),
    ),
    bent("queries of head 0", "The queries" + _AT_HEAD, q=_of_head_0("q")),
    bent("dO of head 0", "The rows of grad" + _AT_HEAD, grad=_of_head_0("grad")),
    bent("lse of head 0", "The numbers of lse" + _AT_HEAD, lse=_of_head_0("lse")),
    bent("dot of head 0", "The numbers of dot" + _AT_HEAD, dot=_of_head_0("dot")),
    bent(
        "queries for dO",
        "The queries" + _OTHER + "grad is loaded from grad_ptr.",
        grad=lambda t: t.q,
    ),
    bent(
        "lse for dot",
        "The numbers of lse" + _OTHER + "dot is loaded from dot_ptr.",
        dot=lambda t: t.lse,
    ),
    bent(
        "dot for lse",
        "The numbers of dot" + _OTHER + "lse is loaded from lse_ptr.",
        lse=lambda t: t.at("dot", t.rows),
    ),
    bent(
        "lse and dot exchanged",
        "lse and dot have changed places: tile_gradients(q, k, v, grad, lse, dot, "
        "...).",
        lse=lambda t: t.at("dot", t.rows),
        dot=lambda t: t.at("lse", t.rows),
    ),
    bent(
        "queries and dO exchanged",
        "q and grad have changed places: tile_gradients(q, k, v, grad, ...).",
        q=lambda t: t.at("grad", t.rows),
        grad=lambda t: t.at("q", t.rows),
    ),
    bent(
        "keys and values exchanged",
        "Keys and values have changed places: tile_gradients(q, k, v, ...).",
        s=lambda t: hidden(t.q @ t.v.mT * t.scale, t.seen),
        dp=lambda t: t.grad @ t.k.mT,
        dq=lambda t: t.ds @ t.v,
    ),
    bent(
        "mask upside down",
        "The mask is upside down: query i sees the keys up to itself, cols <= rows.",
        seen=lambda t: (t.cols[None, :] >= t.rows[:, None]) & (t.rows[:, None] < t.n),
    ),
    bent(
        "seen turned",
        "The mask is turned: seen has a row for each query and a column for each key, "
        "cols[None, :] <= rows[:, None].",
        seen=lambda t: (t.cols[:, None] <= t.rows[None, :]) & (t.rows[None, :] < t.n),
    ),
    bent(
        "seen of one dimension",
        "seen has one dimension, and compares a query with the key of its own place "
        "alone: cols[None, :] <= rows[:, None], a row for each query.",
        seen=lambda t: (t.cols <= t.rows) & (t.rows < t.n),
    ),
    bent(
        "not causal",
        "This is full attention: query i also sees keys after itself. Hide those, "
        "seen has cols[None, :] <= rows[:, None] in it.",
        seen=lambda t: (t.cols[None, :] >= 0) & (t.rows[:, None] < t.n),
    ),
    bent(
        "not causal, past the end",
        "This is full attention: query i also sees keys after itself. Hide those, "
        "seen has cols[None, :] <= rows[:, None] in it.",
        seen=lambda t: (t.cols[None, :] < t.n) & (t.rows[:, None] < t.n),
        firsts=lambda t: range(0, t.n, TILE),
    ),
    bent(
        "dq at cols",
        "dq is added at cols: it belongs to queries, at rows.",
        into=lambda t: t.cols,
    ),
    bent(
        "dq nowhere",
        "dq is as it was made, 0: each tile's part is added to memory, "
        "tl.atomic_add(dq_ptr + at, dq, ...).",
        dq=lambda t: t.ds @ t.k * 0,
    ),
    bent(
        "dq of the last tile",
        "dq is added for the last tile of queries alone: each step adds its own, "
        "within the loop.",
        dq=lambda t: t.ds @ t.k * (t.first + TILE >= t.n),
    ),
    bent(
        "dk and dv not handed on",
        "dk and dv are 0: tile_gradients returns them anew, dq, dk, dv = "
        "tile_gradients(...).",
        dk=lambda t: t.had.dk,
        dv=lambda t: t.had.dv,
    ),
    bent(
        "dk and dv begun anew",
        "dk and dv hold what the last tile of queries gave: they begin with zeros "
        "before the loop, and each step hands on what the one before returned.",
        dk=lambda t: t.ds.mT @ t.q,
        dv=lambda t: half(t.p).mT @ t.grad,
    ),
    bent(
        "dk and dv exchanged on the way out",
        "dk and dv have changed places: dq, dk, dv = tile_gradients(...).",
        into=lambda t: having(t, dk=t.dv, dv=t.dk).rows,
    ),
    bent(
        "dk and dv exchanged on the way in",
        "dk and dv have changed places: tile_gradients(..., scale, dk, dv).",
        dv=lambda t: t.had.dk + half(t.p).mT @ t.grad,
        dk=lambda t: t.had.dv + t.ds.mT @ t.q,
    ),
)
