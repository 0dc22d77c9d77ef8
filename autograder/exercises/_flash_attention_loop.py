"""Chapter 9's loop over tiles, simulated in fp32 with at most one mistake in it.

Each known mistake of the exercises is the right loop with one step changed; what names
the mistakes stands in ``_flash_attention_mistakes``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch

from autograder.drawing import tensor
from autograder.exercise import Arguments, Outputs
from autograder.exercises._flash_attention import QUERIES, scale_of

Hidden = Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]
Mended = Literal[
    "both", "none", "sum", "weight", "tile", "all", "all sum", "all weight"
]
Based = Literal["top", "tile", "queries", "zero", "none", "old", "first", "floor"]


@dataclass(frozen=True)
class Loop:
    """The loop over tiles with at most one mistake in it.

    Args:
        tile: keys at a time.
        mended: what is made relative to the new maximum: ``both`` sums; ``none``; only
            one; ``tile``, the new tile's weights instead of the old sums; or ``all``,
            the sums after the new tile was added to them, ``all sum`` and ``all
            weight`` one of them so and the other as it should be.
        ratio: mend by exp(top) / exp(higher), which is inf / inf for large scores.
        scaled: the scores' factor, as a power of the right one: 0 none, 2 twice.
        padded: how many keys past the end count; ``None``: as many as there is room
            for.
        empty: the score of keys past the end that count.
        hides: which keys are hidden before the maximum; ``None``: the right ones.
        late: hide only after the maximum was taken: ``all`` keys take part in it, or
            those of the tiles that some query of its ``block`` sees; the places past
            the end too, where they count.
        guarded: whether a row that sees nothing gives 0, not NaN.
        begins: what the maximum is before the first tile.
        moved: whether the maximum of a tile is kept for the next.
        based: what the weights are relative to: the maximum so far; the tile's own,
            which the next tile does not know of (``tile``); that of all ``queries``;
            nothing (``zero``, where sums are mended by exp(top) alone, or ``none``,
            where they are mended as they should be); the maximum before the tile
            (``old``), 0 in the ``first`` tile, or 0 where the maximum is below it
            (``floor``).
        kept: which sums keep what earlier tiles have added.
        counted: whether the weights are added up at all.
        pooled: add up the weights of all queries, not of each.
        shared: make each tile's weights a softmax of their own: in ``both`` sums, or
            in the weighted values alone (``sum``).
        divided: when the sum is divided by the weight: at the ``end``, in every
            ``tile`` too, or ``never``.
        skips: with ``guarded`` not set, whether a block passes over what it does not
            see, and a row of weight NaN or 0 is given a share of 0.
        queried: the name of what the queries are multiplied with.
        values: the name of what the weights are multiplied with.
        blank: the score of what is hidden in tiles that a block brings.
        powers: take powers of 2, not of e.
        half: round the weights to fp16.
    """

    tile: int
    mended: Mended = "both"
    ratio: bool = False
    scaled: int = 1
    padded: int | None = 0
    empty: float = 0.0
    hides: Hidden | None = None
    late: Literal["", "all", "block"] = ""
    guarded: bool = True
    begins: float = -math.inf
    moved: bool = True
    based: Based = "top"
    kept: Literal["both", "sum", "weight", "none"] = "both"
    counted: bool = True
    pooled: bool = False
    shared: Literal["", "both", "sum"] = ""
    divided: Literal["end", "tile", "never"] = "end"
    skips: bool = False
    queried: str = "k"
    values: str = "v"
    blank: float = -math.inf
    powers: bool = False
    half: bool = False

    def __call__(self, arguments: Arguments) -> Outputs:
        """Return what an answer with this mistake writes."""
        scores, hidden, v = self._laid_out(arguments)
        top = torch.full_like(scores[..., :1], self.begins)
        weight, total = torch.zeros_like(top), torch.zeros_like(tensor(arguments, "q"))
        for start in range(0, scores.shape[-1], self.tile):
            tile = slice(start, start + self.tile)
            unread = self._beyond(arguments, start)
            part = self._hide(scores[..., tile], hidden[..., tile], unread)
            higher, base = self._bases(top, part)
            mend = self._exp(top - base)
            if self.ratio:
                mend = self._exp(top) / self._exp(base)
            p = self._exp(part - (0.0 if self.based == "none" else base))
            if self.late:
                p = p.masked_fill(hidden[..., tile], 0.0)
            if self.shared == "both":
                p = torch.softmax(part, -1)
            made = self._added(weight, total, mend, p, v[..., tile, :])
            if self.skips or not self.moved:
                # A tile that the block does not bring leaves all as it was.
                made = tuple(
                    torch.where(unread, old, new)
                    for old, new in zip((weight, total), made, strict=True)
                )
            weight, total = made
            if self.divided == "tile":
                total = total / weight
            top = higher if self.moved else top
        return {"out": total * self._share(weight)}

    def _added(
        self,
        weight: torch.Tensor,
        total: torch.Tensor,
        mend: torch.Tensor,
        p: torch.Tensor,
        values: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        """Return weight and total with a tile in them."""
        if self.mended == "tile":
            p = p * mend
        weight = weight * (mend if self.mended in ("both", "weight", "all sum") else 1)
        total = total * (mend if self.mended in ("both", "sum", "all weight") else 1)
        weight = weight * (self.kept in ("both", "weight"))
        total = total * (self.kept in ("both", "sum"))
        share = p / p.sum(-1, keepdim=True) if self.shared == "sum" else p
        summed = p.sum((-2, -1) if self.pooled else -1, keepdim=True)
        weight = weight + summed * self.counted
        if self.half:
            share = share.half().float()
        total = total + share @ values
        if self.mended in ("all", "all weight"):
            weight = weight * mend
        if self.mended in ("all", "all sum"):
            total = total * mend
        return weight, total

    def _bases(
        self, top: torch.Tensor, part: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the maximum with a tile, and what its weights are relative to."""
        own = part.amax(-1, keepdim=True)
        if self.based == "queries":
            own = own.amax().expand_as(own)
        higher = own if self.based == "tile" else torch.maximum(top, own)
        base = top if self.based == "old" else higher
        if self.guarded:
            base = base.masked_fill(base == -math.inf, 0.0)
        if self.based == "first":
            base = base.masked_fill(top == -math.inf, 0.0)
        elif self.based == "floor":
            base = base.clamp(min=0.0)
        elif self.based == "zero":
            base = torch.zeros_like(base)
        return higher, base

    def _share(self, weight: torch.Tensor) -> torch.Tensor:
        """Return what the total is multiplied by at the end."""
        if self.divided == "never":
            return torch.ones_like(weight)
        share = 1.0 / weight
        if self.skips:
            share = share.masked_fill(~(weight > 0.0), 0.0)
        if self.guarded:
            share = share.masked_fill(weight == 0.0, 0.0)
        return share

    def _hide(
        self, part: torch.Tensor, gone: torch.Tensor, unread: torch.Tensor
    ) -> torch.Tensor:
        """Return a tile's scores as the maximum finds them."""
        if self.late == "all":
            return part
        if self.late:
            gone = gone & unread
        if self.blank != -math.inf:
            part, gone = part.masked_fill(gone, self.blank), unread
        return part.masked_fill(gone, -math.inf)

    def _exp(self, x: torch.Tensor) -> torch.Tensor:
        return torch.exp2(x) if self.powers else torch.exp(x)

    def _laid_out(
        self, arguments: Arguments
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return scores, which are hidden, and values, with the empty places."""
        names = ("q", self.queried, self.values)
        q, k, v = (tensor(arguments, n).float() for n in names)
        scores = q @ k.mT * scale_of(arguments) ** self.scaled
        room = -k.shape[-2] % self.tile
        rest = room if self.padded is None else min(room, self.padded)
        scores = torch.nn.functional.pad(scores, (0, rest), value=self.empty)
        v = torch.nn.functional.pad(v, (0, 0, 0, rest))
        i = torch.arange(scores.shape[-2], device=q.device)[:, None]
        j = torch.arange(scores.shape[-1], device=q.device)
        offset = arguments.get("offset")
        assert offset is None or isinstance(offset, int)
        if self.hides is not None:
            hidden = self.hides(i, j, offset or 0)
        elif offset is not None:
            hidden = j > i + offset
        else:
            hidden = torch.zeros_like(i + j, dtype=torch.bool)
        if self.late:
            hidden = hidden | (j >= k.shape[-2])
        return scores, hidden.expand_as(scores), v

    def _beyond(self, arguments: Arguments, start: int) -> torch.Tensor:
        """Say for each query whether its block stops before a tile."""
        q, offset = tensor(arguments, "q"), arguments.get("offset")
        i = torch.arange(q.shape[-2], device=q.device)[:, None]
        if offset is None:
            return torch.zeros_like(i, dtype=torch.bool)
        last = (i // QUERIES * QUERIES + QUERIES).clamp(max=q.shape[-2]) - 1
        return last + offset < start
