"""What can be said of all of a wrong output beside the right one.

Only what holds of every element is said, so that it is a fact and no guess: a factor or
a distance that all have in common, or those of a row or a column; values that are right
and stand elsewhere; an input that came back; or which elements are wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import torch

# Of fewer elements much can be said that is chance; more would take too long.
_LEAST, _MOST = 6, 1 << 22
# As far as roundings to 16 bits, and sums in another order, move what is alike.
_NEAR = 4e-3
_PERIODS = (2, 3, 4, 5, 6, 7, 8, 16, 32, 64, 128, 256, 512, 1024)


def relation(
    name: str,
    got: torch.Tensor,
    wanted: torch.Tensor,
    bad: torch.Tensor,
    inputs: Mapping[str, object],
) -> str:
    """Say what all of an output has in common, in a sentence; '' where nothing.

    Args:
        name: of the output.
        got: what came back.
        wanted: the reference.
        bad: which elements are wrong.
        inputs: the arguments, by name.
    """
    wanted = wanted.cpu().reshape(got.shape)
    if not _LEAST <= got.numel() <= _MOST or got.dtype is torch.bool:
        return ""
    g, w = got.double(), wanted.double()
    said = [_which(bad)]
    if bool(bad.all()) and _finite(g, w):
        said = [_constant(name, g) or _in_common(g, w) or _elsewhere(name, g, w)]
        alike = [other for other, value in inputs.items() if _alike(g, value)]
        said += [f"It is {alike[0]}, unchanged."] if alike else []
    elif int(bad.sum()) >= _LEAST and _finite(g[bad], w[bad]):
        said += [_in_common(g[bad], w[bad]) or _elsewhere(name, g, w)]
    return "".join(f" {sentence}" for sentence in said if sentence)


def _finite(g: torch.Tensor, w: torch.Tensor) -> bool:
    return bool(torch.isfinite(g).all() and torch.isfinite(w).all())


def _constant(name: str, g: torch.Tensor) -> str:
    first = float(g.reshape(-1)[0]) + 0.0  # no -0
    return f"{name} is {first:g} everywhere." if bool((g == first).all()) else ""


def _alike(g: torch.Tensor, value: object) -> bool:
    if not isinstance(value, torch.Tensor) or value.numel() != g.numel():
        return False
    return bool((g.reshape(-1) == value.cpu().double().reshape(-1)).all())


def _in_common(g: torch.Tensor, w: torch.Tensor) -> str:
    """Say by which factor, or by how much, all elements are wrong, or each row's."""
    unit = float(w.abs().max())
    if unit == 0:
        return ""
    for of, axis in _slices(g):
        factor = _factor(g, w, axis)
        if factor is not None and not _is_one(factor):
            return _times(factor, of)
        distance = (g - w).mean(dim=axis, keepdim=True)
        off = (g - w - distance).abs() <= _NEAR * distance.abs() + 1e-6 * unit
        if bool(off.all()) and float(distance.abs().max()) > _NEAR * unit:
            return _more(distance, of)
    return ""


def _slices(g: torch.Tensor) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Give what may have a factor of its own: all, each row, each column."""
    yield "", tuple(range(g.dim()))
    if g.dim() >= 2 and min(g.shape[-2:]) >= _LEAST:
        yield "row", (g.dim() - 1,)
        yield "column", tuple(range(g.dim() - 1))


def _factor(
    g: torch.Tensor, w: torch.Tensor, axis: tuple[int, ...]
) -> torch.Tensor | None:
    """Return the factor between two tensors along some axes; ``None`` without one."""
    square = (w * w).sum(dim=axis, keepdim=True)
    if bool((square == 0).any()):
        return None
    factor = (g * w).sum(dim=axis, keepdim=True) / square
    scale = w.abs().amax(dim=axis, keepdim=True)
    near = (g - factor * w).abs() <= _NEAR * (factor * w).abs() + 1e-5 * scale
    return factor if bool(near.all()) else None


def _is_one(factor: torch.Tensor) -> bool:
    return bool(((factor - 1).abs() <= 2 * _NEAR).all())


def _times(factor: torch.Tensor, of: str) -> str:
    one = float(factor.reshape(-1)[0])
    if of:
        return f"Each {of} is off by one factor, the first by {_ratio(one)}."
    if abs(one + 1) <= _NEAR:
        return "Each has the wrong sign."
    return f"Each is {_ratio(one)} times what is wanted."


def _ratio(factor: float) -> str:
    """Write a factor as a whole number, or as one part of a whole, where it is near."""
    for value, pattern in ((factor, "{}"), (1 / factor if factor else 0.0, "1/{}")):
        whole = round(value)
        if 2 <= whole <= 1 << 20 and math.isclose(value, whole, rel_tol=_NEAR / 4):
            return pattern.format(whole)
    return f"{factor:.4g}"


def _more(distance: torch.Tensor, of: str) -> str:
    one = float(distance.reshape(-1)[0])
    how = f"{abs(one):.4g} {'more' if one > 0 else 'less'} than wanted"
    if of:
        return f"In each {of} all are off by as much, in the first {how}."
    return f"Each is {how}."


def _elsewhere(name: str, g: torch.Tensor, w: torch.Tensor) -> str:
    """Say that the right values stand in other places: shifted, turned, or somehow."""
    if _same(g.reshape(-1).sort().values, w.reshape(-1).sort().values):
        if g.dim() == 2 and _same(g.reshape(w.shape[::-1]).T, w):
            return f"{name} holds the transpose of what is wanted."
        moved = _shift(name, g, w)
        return moved or f"The values of {name} are right, and stand in other places."
    return _shift(name, g, w)


def _shift(name: str, g: torch.Tensor, w: torch.Tensor) -> str:
    """Say by how many places all are shifted, most of the output long."""
    columns = g.shape[-1] if g.dim() > 1 else 0
    g, w = g.reshape(-1), w.reshape(-1)
    middle = len(g) // 2
    for place in (w == g[middle]).nonzero().reshape(-1)[:8].tolist():
        by = place - middle
        kept = len(g) - abs(by)
        here, there = g[max(0, -by) :][:kept], w[max(0, by) :][:kept]
        if by and kept >= max(_LEAST, len(g) // 2) and bool((here == there).all()):
            what, order = "element", ", counted row by row," if columns else ""
            if columns and by % columns == 0:
                what, order, by = "row", "", by // columns
            to = f"i + {by}" if by > 0 else f"i - {-by}"
            return (
                f"{what.title()} i of {name}{order} is what belongs into {what} {to}."
            )
    return ""


def _same(g: torch.Tensor, w: torch.Tensor) -> bool:
    return bool(torch.allclose(g, w, rtol=1e-5, atol=0))


def _which(bad: torch.Tensor) -> str:
    """Say which elements are wrong, where that is a range or every so many-th."""
    if bool(bad.all()) or int(bad.sum()) < 2:
        return ""
    if bad.dim() < 2:
        return _listed(bad, "element")
    for axis, what in ((bad.dim() - 2, "row"), (bad.dim() - 1, "column")):
        others = [at for at in range(bad.dim()) if at != axis]
        hit = bad.amax(dim=others, keepdim=True)
        if bool((bad == hit).all()):
            return _listed(hit.reshape(-1), what)
    return ""


def _listed(hit: torch.Tensor, what: str) -> str:
    """Name places along one axis: a range, or those that a number divides."""
    places = hit.nonzero().reshape(-1)
    low, high, count = int(places[0]), int(places[-1]), len(places)
    if count == len(hit):
        return ""
    if count == 1:
        return (
            f"The wrong ones are all in {what} {low}, and are all of it."
            if what != "element"
            else ""
        )
    if high - low + 1 == count:
        if high == len(hit) - 1:
            return f"The wrong ones are all {what}s from {low} on."
        until = f"{low} to {high}" if low else f"before {high + 1}"
        return f"The wrong ones are the {what}s {until}."
    for period in _PERIODS:
        wrong = torch.zeros(period, dtype=torch.bool)
        wrong[places % period] = True
        if bool((hit == wrong[torch.arange(len(hit)) % period]).all()):
            left = wrong.nonzero().reshape(-1).tolist()
            if len(left) == 1:
                rest = f" plus {left[0]}" if left[0] else ""
                return f"The wrong ones are the {what}s at multiples of {period}{rest}."
            right = (~wrong).nonzero().reshape(-1).tolist()
            if len(right) == 1:
                rest = f" plus {right[0]}" if right[0] else ""
                return f"Only the {what}s at multiples of {period}{rest} are right."
    return ""
