"""Chapter 10's known mistakes in the gradients of a tile."""

from __future__ import annotations

import math
from typing import Any

import torch

from autograder.exercise import NearMiss
from autograder.exercises._flash_attention_triton_lines import (
    bent,
    half,
    hidden,
)

# --- tile_gradients ---------------------------------------------------------------

_BY_ROW = (
    " is one number a query, and lies along the columns unless it is told otherwise: "
)
_ROWS_OF = "dq is made of dS k: a row for each query, of the keys that it saw."
_EXCHANGED = "dk and dv have changed places: return dq, dk, dv."
TILE_BENDS: tuple[NearMiss, ...] = (
    bent(
        "D forgotten",
        "dS is P * dP here: the normalisation takes part too, dS = P * (dP - D), with "
        "D_i = dO_i . O_i, which stands in dot.",
        ds=lambda t: half(t.p * t.dp * t.scale),
    ),
    bent(
        "D added",
        "D is added to dP: dS = P * (dP - D).",
        ds=lambda t: half(t.p * (t.dp + t.dot) * t.scale),
    ),
    bent(
        "scale forgotten in dS",
        "dq and dk are too large by sqrt(d): s is scale * q . k, so its gradient comes "
        "back through the same scale.",
        ds=lambda t: half(t.p * (t.dp - t.dot)),
    ),
    bent(
        "scale twice in dS",
        "dq and dk were multiplied by scale twice.",
        ds=lambda t: half(t.p * (t.dp - t.dot) * t.scale**2),
    ),
    bent(
        "dk replaced",
        "dk: only what the last tile of queries gave is left. Add to what was there "
        "before, +=.",
        dk=lambda t: t.ds.mT @ t.q,
    ),
    bent(
        "dv replaced",
        "dv: only what the last tile of queries gave is left. Add to what was there "
        "before, +=.",
        dv=lambda t: half(t.p).mT @ t.grad,
    ),
    bent(
        "dk and dv replaced",
        "dk and dv: only what the last tile of queries gave is left. Add to what was "
        "there before, +=.",
        dk=lambda t: t.ds.mT @ t.q,
        dv=lambda t: half(t.p).mT @ t.grad,
    ),
    bent(
        "dk and dv exchanged",
        "dk holds what belongs to dv, and dv what belongs to dk: dv += P^T dO, dk += "
        "dS^T q.",
        dv=lambda t: t.dv,
        dk=lambda t: t.dk + half(t.p).mT @ t.grad,
        into=lambda t: having(t, dv=t.dv + t.ds.mT @ t.q).rows,
    ),
    bent(
        "dk and dv exchanged in return",
        _EXCHANGED,
        into=lambda t: having(t, dk=t.dv, dv=t.dk).rows,
    ),
    bent(
        "dP taken from D",
        "The sign is turned: dS = P * (dP - D).",
        ds=lambda t: half(t.p * (t.dot - t.dp) * t.scale),
    ),
    bent(
        "D across",
        "dot" + _BY_ROW + "dot[:, None].",
        ds=lambda t: half(t.p * (t.dp - t.dot.mT) * t.scale),
    ),
    bent(
        "lse across",
        "lse" + _BY_ROW + "lse[:, None].",
        p=lambda t: torch.exp(t.s - t.lse.mT),
    ),
    bent(
        "D outside of the product",
        "D is taken from P * dP: it is taken from dP, dS = P * (dP - D).",
        ds=lambda t: half((t.p * t.dp - t.dot) * t.scale),
    ),
    bent(
        "D of the tile alone",
        "D is summed over this tile's keys: it is a sum over all, and stands in dot.",
        ds=lambda t: half(t.p * (t.dp - (t.p * t.dp).sum(-1, True)) * t.scale),
    ),
    bent(
        "powers of two",
        "P is 2^(s - lse), and lse is a natural logarithm: tl.exp, or exp2 of both "
        "times log2(e).",
        p=lambda t: torch.exp2(t.s - t.lse),
    ),
    bent(
        "natural lse for exp2",
        "s was multiplied by log2(e), and lse was not: exp2 wants both so.",
        p=lambda t: torch.exp2(t.s / math.log(2) - t.lse),
    ),
    bent(
        "lse added",
        "lse is added to s: P = exp(s - lse).",
        p=lambda t: torch.exp(t.s + t.lse),
    ),
    bent(
        "divided by lse",
        "P is exp(s) / lse: lse is the logarithm of the row's sum, P = exp(s - lse).",
        p=lambda t: torch.exp(t.s) / t.lse,
    ),
    bent(
        "lse forgotten",
        "P is exp(s), which is not normalised: P = exp(s - lse).",
        p=lambda t: torch.exp(t.s),
    ),
    bent(
        "relative to the tile's maximum",
        "P is relative to the tile's maximum, and not normalised: P = exp(s - lse), "
        "and no maximum is needed.",
        p=lambda t: torch.exp(t.s - t.s.amax(-1, True)),
    ),
    bent(
        "normalised in the tile",
        "P is normalised over this tile's keys alone: lse stands for the sum over all, "
        "P = exp(s - lse).",
        p=lambda t: torch.softmax(t.s, -1),
    ),
    bent(
        "scale forgotten in s",
        "P is made of products without scale, and lse of products with it.",
        s=lambda t: hidden(t.q @ t.k.mT, t.seen),
    ),
    bent(
        "scale twice in s",
        "s is multiplied by scale twice.",
        s=lambda t: hidden(t.q @ t.k.mT * t.scale**2, t.seen),
    ),
    bent(
        "scale for dq alone",
        "dk is too large by sqrt(d): both dq and dk come back through the scale.",
        ds=lambda t: half(t.p * (t.dp - t.dot)),
        dq=lambda t: t.ds @ t.k * t.scale,
    ),
    bent(
        "scale for dk alone",
        "dq is too large by sqrt(d): both dq and dk come back through the scale.",
        ds=lambda t: half(t.p * (t.dp - t.dot)),
        dk=lambda t: t.dk + t.ds.mT @ t.q * t.scale,
    ),
    bent(
        "scale twice for dq",
        "dq was multiplied by scale twice.",
        dq=lambda t: t.ds @ t.k * t.scale,
    ),
    bent(
        "scale twice for dk",
        "dk was multiplied by scale twice.",
        dk=lambda t: t.dk + t.ds.mT @ t.q * t.scale,
    ),
    bent(
        "scale for dv",
        "dv was multiplied by scale: out = P v holds none of its own.",
        dv=lambda t: t.dv + half(t.p).mT @ t.grad * t.scale,
    ),
    bent(
        "scale of dp alone",
        "dP was multiplied by scale, and D was not: dS = P * (dP - D) * scale.",
        ds=lambda t: half(t.p * (t.dp * t.scale - t.dot)),
    ),
    bent(
        "seen forgotten",
        "Keys that are not seen take part: s = -inf where seen is false.",
        s=lambda t: t.q @ t.k.mT * t.scale,
    ),
    bent(
        "hidden by zeros",
        "Keys that are not seen have a logit of 0, which weighs like any other: -inf.",
        s=lambda t: torch.where(t.seen, t.q @ t.k.mT * t.scale, 0.0),
    ),
    bent(
        "mask the wrong way round",
        "The keys that are seen are hidden, and the others not: tl.where(seen, s, "
        "-inf) keeps s where seen is true.",
        s=lambda t: hidden(t.q @ t.k.mT * t.scale, ~t.seen),
    ),
    bent(
        "seen for dv alone",
        "dq and dk hold parts of keys that are not seen: s = -inf there, before P is "
        "made of it.",
        s=lambda t: t.q @ t.k.mT * t.scale,
        dv=lambda t: t.dv + half(t.p * t.seen).mT @ t.grad,
    ),
    bent(
        "seen for dS alone",
        "dv holds parts of keys that are not seen: s = -inf there, before P is made of "
        "it.",
        s=lambda t: t.q @ t.k.mT * t.scale,
        ds=lambda t: half(t.p * (t.dp - t.dot) * t.scale) * t.seen,
    ),
    bent(
        "P not transposed",
        "dv is made of P, and P^T it must be: P is (ROWS, COLS), queries by keys, and "
        "dv has a row for each key.",
        dv=lambda t: t.dv + half(t.p) @ t.grad,
    ),
    bent(
        "dS not transposed",
        "dk is made of dS, and dS^T it must be: dS is (ROWS, COLS), queries by keys, "
        "and dk has a row for each key.",
        dk=lambda t: t.dk + t.ds @ t.q,
    ),
    bent(
        "dv of dS",
        "dv is made of dS: out = P v, so dv = P^T dO.",
        dv=lambda t: t.dv,
        into=lambda t: having(t, dv=t.dv + t.ds.mT @ t.grad).rows,
    ),
    bent(
        "dv of dP",
        "dv is made of dP: out = P v, so dv = P^T dO.",
        dv=lambda t: t.dv + half(t.grad @ t.v.mT).mT @ t.grad,
    ),
    bent(
        "dv of s",
        "dv is made of s: out = P v, so dv = P^T dO.",
        dv=lambda t: t.dv + half(torch.where(t.seen, t.s, 0.0)).mT @ t.grad,
    ),
    bent(
        "dS turned for dq",
        "dq is made of dS^T: " + _ROWS_OF,
        dq=lambda t: t.ds.mT @ t.k,
    ),
    bent(
        "dq of queries",
        "dq is made of queries: " + _ROWS_OF,
        dq=lambda t: t.ds @ t.q,
    ),
    bent(
        "dk of keys",
        "dk is made of keys: dk = dS^T q.",
        dk=lambda t: t.dk + t.ds.mT @ t.k,
    ),
    bent(
        "dk of dO",
        "dk is made of dO: dk = dS^T q.",
        dk=lambda t: t.dk + t.ds.mT @ t.grad,
    ),
    bent(
        "dk of P",
        "dk is made of P: dk = dS^T q.",
        dk=lambda t: t.dk + half(t.p).mT @ t.q,
    ),
    bent(
        "dv of values",
        "dv is made of values: dv = P^T dO.",
        dv=lambda t: t.dv + half(t.p).mT @ t.v,
    ),
    bent(
        "dv of queries",
        "dv is made of queries: dv = P^T dO.",
        dv=lambda t: t.dv + half(t.p).mT @ t.q,
    ),
    bent(
        "dP of keys",
        "dP is made of keys: dP = dO v^T.",
        dp=lambda t: t.grad @ t.k.mT,
    ),
    bent(
        "dP of queries",
        "dP is made of queries: dP = dO v^T.",
        dp=lambda t: t.q @ t.v.mT,
    ),
    bent(
        "dP turned",
        "dP has a row for each key: dP = dO v^T has one for each query.",
        dp=lambda t: t.v @ t.grad.mT,
    ),
    bent(
        "P left out of dS",
        "dS is dP - D: P belongs to it, dS = P * (dP - D).",
        ds=lambda t: half((t.dp - t.dot) * t.scale),
    ),
    bent(
        "P twice in dS",
        "dS holds P twice: dS = P * (dP - D).",
        ds=lambda t: half(t.p * t.p * (t.dp - t.dot) * t.scale),
    ),
    bent(
        "softmax number by number",
        "P (1 - P) dP is the gradient of a number by itself: a row's weights depend on "
        "all its logits, dS = P * (dP - D).",
        ds=lambda t: half(t.p * (1 - t.p) * t.dp * t.scale),
    ),
)


def having(t: Any, **values: torch.Tensor) -> Any:
    """Set lines late, where two of them change places."""
    vars(t).update(values)
    return t
