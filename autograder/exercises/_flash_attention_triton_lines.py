"""Chapter 10's loops in torch, line by line: a mistake is a line that reads otherwise.

``walked`` does what a kernel does that absorbs tiles of keys, ``gathered`` what one
does that owns keys and walks over queries. Each line of the loop has the name of what
it sets, so that ``walked(a, new=lambda t: t.s.amax(-1, True))`` is the kernel in which
`new` is the maximum of the tile alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import torch

from autograder.drawing import tensor
from autograder.exercise import Arguments, NearMiss, Outputs
from autograder.exercises._flash_attention_triton import TILE, spread

Line = Callable[[Any], Any]
Lines = Mapping[str, Line]


def half(x: torch.Tensor) -> torch.Tensor:
    """Round to fp16, as an operand of a product."""
    return x.half().float()


def hidden(s: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    """Put -inf where a key is not seen."""
    return torch.where(seen, s, -math.inf)


def rows_at(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    """Return rows of x (..., rows, d) in fp32; zeros where there is none."""
    inside = (at >= 0) & (at < x.shape[2])
    rows = x.float()[:, :, at.clamp(0, x.shape[2] - 1)]
    return torch.where(inside[:, None], rows, 0.0)


# --- tiles of keys, absorbed ------------------------------------------------------

_ABSORBING: Lines = {
    "cols": lambda t: t.first + t.tile,
    "k": lambda t: t.at("k", t.cols),
    "v": lambda t: t.at("v", t.cols),
    "seen": lambda t: t.cols[None, :] < t.keys,
    "s": lambda t: hidden(t.q @ t.k.mT * t.scale, t.seen),
    "new": lambda t: torch.maximum(t.most, t.s.amax(-1, True)),
    "p": lambda t: torch.exp(t.s - t.new),
    "shrink": lambda t: torch.exp(t.most - t.new),
    "total": lambda t: t.total * t.shrink + t.p.sum(-1, True),
    "acc": lambda t: t.acc * t.shrink + half(t.p) @ t.v,
    "most": lambda t: t.new,
}
CAUSAL: Lines = {
    "firsts": lambda t: range(0, min(t.n, t.top + TILE), TILE),
    "seen": lambda t: t.cols[None, :] <= t.rows[:, None],
}
GROUPED: Lines = {
    "firsts": lambda t: range(0, min(t.keys, t.top + TILE + t.ahead), TILE),
    "seen": lambda t: t.cols[None, :] <= t.rows[:, None] + t.ahead,
}


def _all_keys(t: Any) -> range:
    return range(0, t.keys, TILE)


def _from_its_own(t: Any) -> range:
    return range(t.mine, t.n, TILE)


def walked(arguments: Arguments, lines: Lines | None = None, **more: Line) -> Outputs:
    """Attend as a kernel does, where some of its lines read otherwise.

    Args:
        arguments: q, k, v.
        lines: those of the kernel that differ from full attention's, ``CAUSAL`` say.
        more: those that are mistaken.
    """
    loop = {**_ABSORBING, **(lines or {}), **more}
    firsts: Line = loop.pop("firsts", _all_keys)
    q = tensor(arguments, "q")
    k, v = spread(arguments)
    held = {"k": k, "v": v, "q": q}
    n, keys = q.shape[2], k.shape[2]
    made = []
    for top in range(0, n, TILE):
        tile = torch.arange(TILE, device=q.device)
        t: Any = SimpleNamespace(n=n, keys=keys, ahead=keys - n, top=top, tile=tile)
        t.rows, t.scale = top + tile, q.shape[3] ** -0.5
        t.group = q.shape[1] // tensor(arguments, "k").shape[1]
        t.held, t.at = held, lambda name, at: rows_at(held[name], at)
        t.q = t.at("q", t.rows)
        t.acc = torch.zeros_like(t.q)
        t.total = torch.zeros_like(t.q[..., :1])
        t.most = torch.full_like(t.total, -math.inf)
        for first in firsts(t):
            t.first = first
            t.had = SimpleNamespace(most=t.most, total=t.total, acc=t.acc)
            for name, line in loop.items():
                setattr(t, name, line(t))
        made.append(t.acc / t.total)
    return {"out": torch.cat(made, 2)[:, :, :n]}


def slip(name: str, message: str, lines: Lines | None = None, **more: Line) -> NearMiss:
    """Return what ``walked`` makes of mistaken lines, and the sentence for it."""
    return NearMiss(name, lambda a: walked(a, lines, **more), message)


# --- tiles of queries, for the gradients ------------------------------------------

_GATHERING: Lines = {
    "rows": lambda t: t.first + t.tile,
    "q": lambda t: t.at("q", t.rows),
    "grad": lambda t: t.at("grad", t.rows),
    "lse": lambda t: t.at("lse", t.rows),
    "dot": lambda t: t.at("dot", t.rows),
    "seen": lambda t: (t.cols[None, :] <= t.rows[:, None]) & (t.rows[:, None] < t.n),
    "s": lambda t: hidden(t.q @ t.k.mT * t.scale, t.seen),
    "p": lambda t: torch.exp(t.s - t.lse),
    "dv": lambda t: t.dv + half(t.p).mT @ t.grad,
    "dp": lambda t: t.grad @ t.v.mT,
    "ds": lambda t: half(t.p * (t.dp - t.dot) * t.scale),
    "dk": lambda t: t.dk + t.ds.mT @ t.q,
    "dq": lambda t: t.ds @ t.k,
    "into": lambda t: t.rows,
}


def gathered(arguments: Arguments, **more: Line) -> Outputs:
    """Differentiate as the kernel does, where some of its lines read otherwise.

    ``into`` says to which rows dq is added, ``firsts`` where tiles of queries begin.
    """
    loop = {**_GATHERING, **more}
    firsts: Line = loop.pop("firsts", _from_its_own)
    held = {x: tensor(arguments, x) for x in ("q", "k", "v", "grad")}
    held["lse"] = tensor(arguments, "lse")[..., None]
    out = tensor(arguments, "out").float()
    held["dot"] = (held["grad"].float() * out).sum(-1, True)
    n = out.shape[2]
    dq = torch.zeros_like(out)
    dks, dvs = [], []
    for mine in range(0, n, TILE):
        tile = torch.arange(TILE, device=out.device)
        t: Any = SimpleNamespace(n=n, mine=mine, tile=tile, cols=mine + tile)
        t.held, t.at = held, lambda name, at: rows_at(held[name], at)
        t.scale, t.k, t.v = out.shape[3] ** -0.5, t.at("k", t.cols), t.at("v", t.cols)
        t.dk, t.dv = torch.zeros_like(t.k), torch.zeros_like(t.v)
        for first in firsts(t):
            t.first = first
            t.had = SimpleNamespace(dk=t.dk, dv=t.dv)
            for name, line in loop.items():
                setattr(t, name, line(t))
            inside = (t.into >= 0) & (t.into < n)
            dq.index_add_(2, t.into[inside], t.dq[:, :, inside])
        dks.append(t.dk)
        dvs.append(t.dv)
    return {
        "dq": dq,
        "dk": torch.cat(dks, 2)[:, :, :n],
        "dv": torch.cat(dvs, 2)[:, :, :n],
    }


def bent(name: str, message: str, **more: Line) -> NearMiss:
    """Return what ``gathered`` makes of mistaken lines, and the sentence for it."""
    return NearMiss(name, lambda a: gathered(a, **more), message)
