"""Chapter 10's known mistakes in a tile of keys, and in what a walk hands to it."""

from __future__ import annotations

import torch

from autograder.exercise import NearMiss
from autograder.exercises._flash_attention_triton_lines import (
    Line,
    Lines,
    half,
    hidden,
    slip,
)

_TWO = "tl.exp2(x) is 2^x, and e^x is tl.exp(x), or tl.exp2(x * log2(e))."
_OWN_PART = (
    " What was there is brought to the new maximum; this tile's own part is relative "
    "to it already."
)
_SHRUNK_ACC = (
    "In acc this tile's own part is shrunk: acc = acc * shrink[:, None] + tl.dot(...)."
    + _OWN_PART
)
_SHRUNK_TOTAL = (
    "In total this tile's own part is shrunk: total = total * shrink + tl.sum(p, 1)."
    + _OWN_PART
)
_EARLY = (
    "acc is divided by total within a tile, and again by those after it: it is divided "
    "once, at the end of the walk."
)
# What is mistaken, what is said of it, and the lines that read otherwise.
_IN_A_TILE: tuple[tuple[str, str, dict[str, Line]], ...] = (
    (
        "own part of acc shrunk",
        _SHRUNK_ACC,
        {"acc": lambda t: t.acc + half(t.p) @ t.v * t.shrink},
    ),
    (
        "all of acc shrunk",
        _SHRUNK_ACC,
        {"acc": lambda t: (t.acc + half(t.p) @ t.v) * t.shrink},
    ),
    (
        "own part of total shrunk",
        _SHRUNK_TOTAL,
        {"total": lambda t: t.total + t.p.sum(-1, True) * t.shrink},
    ),
    (
        "all of total shrunk",
        _SHRUNK_TOTAL,
        {"total": lambda t: (t.total + t.p.sum(-1, True)) * t.shrink},
    ),
    (
        "own part of both shrunk",
        "In total and in acc this tile's own part is shrunk." + _OWN_PART,
        {
            "total": lambda t: t.total + t.p.sum(-1, True) * t.shrink,
            "acc": lambda t: t.acc + half(t.p * t.shrink) @ t.v,
        },
    ),
    (
        "all of both shrunk",
        "total and acc are shrunk after this tile's part was added: before it."
        + (_OWN_PART),
        {
            "total": lambda t: (t.total + t.p.sum(-1, True)) * t.shrink,
            "acc": lambda t: (t.acc + half(t.p) @ t.v) * t.shrink,
        },
    ),
    (
        "total shrunk twice",
        "total is multiplied by shrink twice: once brings it to the new maximum.",
        {"total": lambda t: t.total * t.shrink**2 + t.p.sum(-1, True)},
    ),
    (
        "seen added",
        "seen is added to the logits, or taken times them: a key that is not seen "
        "must weigh nothing, tl.where(seen, s, -inf).",
        {"s": lambda t: t.q @ t.k.mT * t.scale + t.seen.float()},
    ),
    (
        "mask the wrong way round",
        "The keys that are seen are hidden, and the others not: tl.where(seen, s, "
        "-inf) keeps s where seen is true.",
        {"s": lambda t: hidden(t.q @ t.k.mT * t.scale, ~t.seen)},
    ),
    (
        "hidden keys in the maximum",
        "Keys that are not seen take part in the maximum: where all others are far "
        "lower, their weights come to 0. Hide before tl.max.",
        {
            "s": lambda t: t.q @ t.k.mT * t.scale,
            "p": lambda t: torch.where(t.seen, torch.exp(t.s - t.new), 0.0),
        },
    ),
    (
        "hidden by a finite number",
        "Keys that are not seen got a finite logit, and where all others are lower "
        "still they outweigh them: float('-inf').",
        {"s": lambda t: torch.where(t.seen, t.q @ t.k.mT * t.scale, -100.0)},
    ),
    (
        "scale after the maximum",
        "The maximum is of products without scale, and p of products with it: most, p "
        "and shrink must speak of the same numbers. Scale s before tl.max.",
        {
            "s": lambda t: hidden(t.q @ t.k.mT, t.seen),
            "p": lambda t: torch.exp((t.s - t.new) * t.scale),
        },
    ),
    (
        "scale in p alone",
        "The maximum is of products without scale, and p of products with it: most, p "
        "and shrink must speak of the same numbers. Scale s before tl.max.",
        {
            "s": lambda t: hidden(t.q @ t.k.mT, t.seen),
            "p": lambda t: torch.exp(t.s * t.scale - t.new),
        },
    ),
    (
        "divided by scale",
        "The products q . k are divided by scale: it is 1 / sqrt(d) already, multiply.",
        {"s": lambda t: hidden(t.q @ t.k.mT / t.scale, t.seen)},
    ),
    (
        "powers of two",
        _TWO,
        {
            "p": lambda t: torch.exp2(t.s - t.new),
            "shrink": lambda t: torch.exp2(t.most - t.new),
        },
    ),
    ("powers of two in p", "p: " + _TWO, {"p": lambda t: torch.exp2(t.s - t.new)}),
    (
        "powers of two in shrink",
        "shrink: " + _TWO,
        {"shrink": lambda t: torch.exp2(t.most - t.new)},
    ),
    (
        "p upside down",
        "p is exp(new - s), and the smallest logit weighs most: exp(s - new).",
        {"p": lambda t: torch.exp(t.new - t.s)},
    ),
    (
        "p relative to nothing",
        "p is exp(s), and total and acc are brought from one maximum to the next: p is "
        "relative to the new one, exp(s - new).",
        {"p": lambda t: torch.exp(t.s)},
    ),
    (
        "total replaced",
        "total holds the last tile's weights alone: add to what was there.",
        {"total": lambda t: t.p.sum(-1, True)},
    ),
    (
        "one sum for all",
        "One sum serves all queries of the tile: each needs that of its own row, "
        "tl.sum(p, 1).",
        {"total": lambda t: t.total * t.shrink + t.p.sum((-2, -1), True)},
    ),
    (
        "most of the tile alone",
        "most is returned as this tile's maximum: acc and total are relative to new, "
        "the larger of this and of what was there. most = new.",
        {"most": lambda t: t.s.amax(-1, True)},
    ),
    (
        "s turned",
        "s has a row for each key: q k^T has one for each query, tl.dot(q, "
        "tl.trans(k)).",
        {"s": lambda t: hidden(t.k @ t.q.mT * t.scale, t.seen)},
    ),
    (
        "p turned",
        "acc adds p^T v: p is (ROWS, COLS) and v (COLS, D), tl.dot(p, v).",
        {"acc": lambda t: t.acc * t.shrink + half(t.p).mT @ t.v},
    ),
    (
        "values for keys",
        "s is made of values: s = q k^T.",
        {"s": lambda t: hidden(t.q @ t.v.mT * t.scale, t.seen)},
    ),
    (
        "keys for values",
        "acc is made of keys: it adds p v.",
        {"acc": lambda t: t.acc * t.shrink + half(t.p) @ t.k},
    ),
    (
        "normalised in each tile",
        _EARLY,
        {"acc": lambda t: (t.acc * t.shrink + half(t.p) @ t.v) / t.total},
    ),
    (
        "p normalised in each tile",
        _EARLY,
        {"acc": lambda t: t.acc * t.shrink + half(t.p / t.total) @ t.v},
    ),
)


def absorb_slips(lines: Lines) -> tuple[NearMiss, ...]:
    """Return the mistakes of the online softmax, in a walk with these lines."""
    return tuple(slip(name, said, lines, **bad) for name, said, bad in _IN_A_TILE)


# --- what a walk hands to absorb, and takes back ----------------------------------


def handed_over(lines: Lines) -> tuple[NearMiss, ...]:
    """Return the mistakes of any walk that calls absorb, with these lines."""
    return (
        slip(
            "keys for values",
            "out is a mean of keys: v is loaded from v_ptr.",
            lines,
            v=lambda t: t.at("k", t.cols),
        ),
        slip(
            "values for keys",
            "The logits are made of values: k is loaded from k_ptr.",
            lines,
            k=lambda t: t.at("v", t.cols),
        ),
        slip(
            "keys and values exchanged",
            "Keys and values have changed places: absorb takes q, k, v.",
            lines,
            k=lambda t: t.at("v", t.cols),
            v=lambda t: t.at("k", t.cols),
        ),
        slip(
            "scale handed on twice",
            "The products q . k are multiplied by scale twice: absorb takes scale as "
            "it is.",
            lines,
            s=lambda t: hidden(t.q @ t.k.mT * t.scale**2, t.seen),
        ),
        slip(
            "scale not handed on",
            "The products q . k are not multiplied by scale: it is absorb's fifth "
            "argument.",
            lines,
            s=lambda t: hidden(t.q @ t.k.mT, t.seen),
        ),
        slip(
            "most and total exchanged on the way in",
            "most and total have changed places: absorb(..., most, total, acc).",
            lines,
            new=lambda t: torch.maximum(t.had.total, t.s.amax(-1, True)),
            shrink=lambda t: torch.exp(t.had.total - t.new),
            total=lambda t: t.had.most * t.shrink + t.p.sum(-1, True),
        ),
        slip(
            "most and total exchanged on the way out",
            "most and total have changed places: most, total, acc = absorb(...).",
            lines,
            total=lambda t: t.new,
            most=lambda t: t.had.total * t.shrink + t.p.sum(-1, True),
        ),
    )
