"""Tokens on their way to experts and back, with sliders for imbalance and capacity."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from kernelwright.draw import palette
from kernelwright.draw.live import Explorer, Picture
from kernelwright.draw.steps import Frame, Steps
from kernelwright.errors import ArgumentError

Route = Callable[[torch.Tensor, int], tuple[torch.Tensor, torch.Tensor]]

_MOST_TOKENS, _MOST_EXPERTS = 32, 8  # that can still be read in one picture
_WIDTH, _TOP = 492.0, 44.0
_LEFT, _RIGHT = 34.0, 458.0  # where tokens are, before and after
_BOX, _BOX_RIGHT = 150.0, 342.0  # where experts begin and end
_STEP, _DOT, _LABEL = 15.0, 4.5, 17.0  # _LABEL: what is above an expert's box


def explore_routing(
    route: Route | None = None,
    *,
    tokens: int = 24,
    experts: int = 6,
    k: int = 2,
    imbalances: Sequence[float] = (0, 1, 2, 3),
    capacities: Sequence[float | str] = ("none", 2, 1.25, 1),
    seed: int = 0,
) -> Explorer:
    """Let the reader make some experts popular, and limit how many tokens each takes.

    Args:
        route: of logits (tokens, experts) and k; returns weights and experts, both
            (tokens, k). By default torch's ``topk``.
        tokens: how many, at most 32.
        experts: how many, at most 8.
        k: experts of a token.
        imbalances: to choose from: how far the first expert's logits lie above the
            last one's, in standard deviations of a logit.
        capacities: to choose from: the tokens an expert takes, in units of its fair
            share; ``none`` for no limit.
        seed: of the logits.

    Raises:
        ArgumentError: there is too much for one picture.
    """
    if not (1 <= tokens <= _MOST_TOKENS and 1 <= k <= experts <= _MOST_EXPERTS):
        raise ArgumentError(
            f"{tokens} tokens, {experts} experts, k = {k}; wanted up to "
            f"{_MOST_TOKENS} tokens, {_MOST_EXPERTS} experts and a k up to these, "
            "which can be read in one picture."
        )
    noise = torch.randn(tokens, experts, generator=torch.Generator().manual_seed(seed))

    def draw(imbalance: float, capacity: float | str) -> Picture:
        liking = torch.linspace(imbalance / 2, -imbalance / 2, experts)
        chosen = (route or _by_torch)(noise + liking, k)[1].tolist()
        limit = None
        if not isinstance(capacity, str):
            limit = math.ceil(capacity * tokens * k / experts)
        return _pictured(_Routed(chosen, experts, limit))

    return Explorer(
        {"imbalance": tuple(imbalances), "capacity": tuple(capacities)},
        draw,
        "A row of an expert's box is a token that it takes; the line across the box is "
        "its fair share. Dashed red lines end at experts that are full: nothing "
        "comes back of these. On the right a full dot has got all of its "
        "experts' results, a paler one some, a red ring none.",
    )


def _by_torch(logits: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    values, experts = logits.topk(k)
    return values.softmax(1), experts


@dataclass(frozen=True)
class _Routed:
    """Who goes where.

    Args:
        chosen: each token's experts, the first choice first.
        experts: how many there are.
        limit: the most tokens of an expert, or none.
    """

    chosen: Sequence[Sequence[int]]
    experts: int
    limit: int | None

    def asked(self) -> list[int]:
        """Count the tokens that want each expert."""
        flat = [e for row in self.chosen for e in row]
        return [flat.count(e) for e in range(self.experts)]

    def ranks(self) -> list[list[int]]:
        """Number an expert's tokens: all first choices, then all second ones."""
        taken = [0] * self.experts
        ranks = [[0] * len(row) for row in self.chosen]
        for j in range(len(self.chosen[0])):
            for token, row in enumerate(self.chosen):
                ranks[token][j] = taken[row[j]]
                taken[row[j]] += 1
        return ranks

    def keeps(self, rank: int) -> bool:
        """Say whether the expert has room for a token of this rank."""
        return self.limit is None or rank < self.limit


def _pictured(routed: _Routed) -> Picture:
    height = _TOP + routed.experts * _Place(routed).slot + 8
    drawn = Steps([Frame(_lines(routed) + _boxes(routed) + _dots(routed), "")],
                  "", _WIDTH, height, "", "", wide=False, narrow=True)  # fmt: skip
    return Picture(drawn, _words(routed))


def _words(routed: _Routed) -> str:
    asked, ranks = routed.asked(), routed.ranks()
    fair = sum(asked) / routed.experts
    most = max(asked)
    said = (
        f"expert {asked.index(most)} is wanted by {most} tokens, "
        f"{most / fair:.2g} times its fair share of {fair:.3g}"
    )
    idle = asked.count(0)
    if idle:
        said += f"; {idle} expert{'s' * (idle > 1)} by none"
    if routed.limit is None:
        return f"{said}; nobody is dropped."
    lost = [sum(not routed.keeps(rank) for rank in row) for row in ranks]
    bare = sum(count == len(routed.chosen[0]) for count in lost)
    empty = sum(max(0, routed.limit - count) for count in asked)
    return (
        f"{said}; each takes {routed.limit}: {sum(lost)} of {sum(asked)} pairs are "
        f"dropped, {bare} token{'s' * (bare != 1)} with all "
        f"{'its' if bare == 1 else 'their'} experts, and {empty} rows stay empty."
    )


class _Place:
    """Where tokens and experts' rows are in the picture."""

    def __init__(self, routed: _Routed) -> None:
        count = len(routed.chosen)
        self.slot = max(count * _STEP / routed.experts, 2.5 * _LABEL)
        self.step = self.slot * routed.experts / count
        # As many rows as the most popular expert could be asked for.
        self.high = self.slot - _LABEL - 6
        self.row = self.high / count

    def token(self, token: int) -> float:
        return _TOP + (token + 0.5) * self.step

    def top(self, expert: int) -> float:
        return _TOP + expert * self.slot + _LABEL

    def entry(self, expert: int, rank: int) -> float:
        return self.top(expert) + (rank + 0.5) * self.row


def _lines(routed: _Routed) -> str:
    place, ranks = _Place(routed), routed.ranks()
    kept: list[list[str]] = [[] for _ in range(routed.experts)]
    lost: list[str] = []
    for token, row in enumerate(routed.chosen):
        y = place.token(token)
        for expert, rank in zip(row, ranks[token], strict=True):
            at = place.entry(expert, rank)
            there = f"M{_LEFT:g} {y:g}C92 {y:g} 92 {at:.1f} {_BOX:g} {at:.1f}"
            if not routed.keeps(rank):
                lost.append(there)
                continue
            back = f"M{_BOX_RIGHT:g} {at:.1f}C400 {at:.1f} 400 {y:g} {_RIGHT:g} {y:g}"
            kept[expert].append(there + back)
    parts = [
        f'<path fill="none" stroke="{palette.series(expert)}" stroke-opacity=".75" '
        f'd="{"".join(paths)}"/>'
        for expert, paths in enumerate(kept)
        if paths
    ]
    if lost:
        parts.append(
            f'<path fill="none" stroke="{palette.BAD}" stroke-dasharray="4 3" '
            f'd="{"".join(lost)}"/>'
        )
    return "".join(parts)


def _boxes(routed: _Routed) -> str:
    place, asked = _Place(routed), routed.asked()
    fair = sum(asked) / routed.experts
    parts = []
    for expert, count in enumerate(asked):
        top, high = place.top(expert), place.high
        wide = _BOX_RIGHT - _BOX
        kept = count if routed.limit is None else min(count, routed.limit)
        parts.append(palette.box(_BOX, top, wide, high, class_="kw-none"))
        if kept:
            colour = f"--c: {palette.series(expert)}"
            parts.append(
                palette.box(_BOX, top, wide, kept * place.row, class_="kw-used",
                            style=colour)
            )  # fmt: skip
        if count > kept:
            parts.append(
                palette.box(_BOX, top + kept * place.row, wide,
                            (count - kept) * place.row, class_="kw-wrong",
                            stroke_dasharray="3 3")
            )  # fmt: skip
        line = top + fair * place.row
        parts.append(
            f'<line x1="{_BOX - 5:g}" x2="{_BOX_RIGHT + 5:g}" y1="{line:.1f}" '
            f'y2="{line:.1f}" stroke="{palette.INK}" stroke-width="1.3"/>'
        )
        said = f"expert {expert}: {count}"
        if count > kept:
            said += f", {count - kept} dropped"
        middle = (_BOX + _BOX_RIGHT) / 2
        parts.append(palette.text(middle, top - 5, said))
    return "".join(parts)


def _dots(routed: _Routed) -> str:
    place, ranks = _Place(routed), routed.ranks()
    parts = [
        palette.text(4, 20, "tokens", class_="kw-head"),
        palette.text((_BOX + _BOX_RIGHT) / 2, 20, "experts", class_="kw-head",
                     style="text-anchor: middle"),
        palette.text(_WIDTH - 4, 20, "combined", class_="kw-head",
                     style="text-anchor: end"),
    ]  # fmt: skip
    for token, row in enumerate(ranks):
        y = place.token(token)
        got = sum(routed.keeps(rank) for rank in row) / len(row)
        parts.append(_dot(_LEFT - _DOT, y, f'fill="{palette.INK}"'))
        look = (
            f'fill="{palette.INK}" fill-opacity="{0.15 + 0.85 * got:.2g}"'
            if got
            else f'fill="none" stroke="{palette.BAD}" stroke-width="2"'
        )
        parts.append(_dot(_RIGHT + _DOT, y, look))
    return "".join(parts)


def _dot(x: float, y: float, look: str) -> str:
    return f'<circle cx="{x:g}" cy="{y:g}" r="{_DOT}" {look}/>'
