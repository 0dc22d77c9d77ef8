"""Who sends what to whom: one message to all, or chunks that go round a ring.

A ring of n ranks moves 2 (n - 1) / n of a tensor out of each rank, which is the least
that an all-reduce can, in 2 (n - 1) steps. Where n messages of the whole tensor take
less time than those steps, each rank sends it to all and sums for itself.

Every sum is made in one place and copied, or made everywhere in the order of ranks, so
all ranks have the same bits. In a ring, segment s is summed from rank s + 1 on, round
to rank s. Numbers of 16 bits are added in fp32: in a ring each rank's sum is rounded to
16 bits before it goes on, as NCCL's is; of small messages the whole sum is rounded
once.

Source: Patarasuk and Yuan, Bandwidth Optimal All-reduce Algorithms for Clusters of
Workstations (JPDC 69, 2009).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch

from solutions.ring_allreduce.mesh import Exchange, Mesh

SMALL = 256 * 1024
"""Bytes that a rank sends to all others together, up to which one message to each
takes less time than the steps of a ring."""
CHUNK = 512 * 1024
"""Bytes that go round a ring in one piece: a rank adds one while the next arrives."""

_COMBINE: dict[str, Callable[..., torch.Tensor]] = {
    "SUM": torch.add,
    "AVG": torch.add,
    "PRODUCT": torch.mul,
    "MIN": torch.minimum,
    "MAX": torch.maximum,
}


def is_small(nbytes: int, size: int) -> bool:
    """Say whether each rank sends all that it has to all others."""
    return size == 1 or nbytes * (size - 1) <= SMALL


def as_bytes(flat: torch.Tensor) -> memoryview:
    """View a contiguous CPU tensor's memory."""
    if not flat.numel():
        return memoryview(b"")
    return flat.view(torch.uint8).numpy().data


def in_order(parts: Sequence[torch.Tensor], op: str, out: torch.Tensor) -> None:
    """Combine what all ranks gave, in the order of ranks; round once."""
    wide = out.dtype in (torch.float16, torch.bfloat16)
    total = parts[0].float() if wide else parts[0].clone()
    for part in parts[1:]:
        _COMBINE[op](total, part.float() if wide else part, out=total)
    if op == "AVG":
        total /= len(parts)
    out.copy_(total)


def segments(numel: int, size: int) -> list[slice]:
    """Divide a tensor among ranks; lengths differ by one at most."""
    bounds = [numel * r // size for r in range(size + 1)]
    return [slice(first, last) for first, last in pairwise(bounds)]


class Ring:
    """Chunks of a tensor on their way round the ranks.

    In step t rank r sends segment r - t - 1 and receives segment r - t - 2. In the
    first n - 1 steps what arrives is combined with what is there, and rank r has the
    whole sum of segment r; in n - 1 more what arrives is kept. A chunk of a step goes
    on as soon as it has arrived, whatever its neighbours in the segment do.

    Args:
        mesh: the group's connections.
        flat: (numel), on the CPU; changed in place.
        parts: a slice of ``flat`` for each rank.
        what: the call's name, for errors.
    """

    def __init__(
        self, mesh: Mesh, flat: torch.Tensor, parts: Sequence[slice], what: str
    ) -> None:
        self._mesh, self._flat, self._parts = mesh, flat, parts
        self._exchange = Exchange(mesh, what)
        longest = max(part.stop - part.start for part in parts)
        self._pieces = max(1, -(-longest * flat.itemsize // CHUNK))
        self._right = (mesh.rank + 1) % mesh.size
        self._left = (mesh.rank - 1) % mesh.size

    def chunk(self, step: int, piece: int) -> torch.Tensor:
        """Return the numbers that this rank sends in a step, piece by piece."""
        part = self._parts[(self._mesh.rank - step - 1) % self._mesh.size]
        length = part.stop - part.start
        begin = part.start + length * piece // self._pieces
        end = part.start + length * (piece + 1) // self._pieces
        return self._flat[begin:end]

    def run(self, first: int, last: int, op: str) -> None:
        """Take steps ``first`` to ``last`` - 1; those before n - 1 combine.

        Raises:
            RankLost: a rank has ended.
        """
        size = self._mesh.size
        room = torch.empty(
            max(part.stop - part.start for part in self._parts) // self._pieces + 1,
            dtype=self._flat.dtype,
        )
        for piece in range(self._pieces):
            self._send(first, piece)
        for step in range(first, last):
            for piece in range(self._pieces):
                # What this rank sends one step later.
                mine = self.chunk(step + 1, piece)
                combines = step < size - 1
                whole = step == size - 2
                into = room[: mine.numel()] if combines else mine

                def arrived(
                    step: int = step,
                    piece: int = piece,
                    mine: torch.Tensor = mine,
                    other: torch.Tensor | None = into if combines else None,
                    divide: bool = whole and op == "AVG",
                ) -> None:
                    if other is not None:
                        _combine(op, mine, other, size if divide else 1)
                    if step + 1 < last:
                        self._send(step + 1, piece)

                self._exchange.receive(self._left, as_bytes(into), arrived)
        self._exchange.run()

    def _send(self, step: int, piece: int) -> None:
        self._exchange.send(self._right, as_bytes(self.chunk(step, piece)))


def _combine(op: str, mine: torch.Tensor, other: torch.Tensor, ranks: int) -> None:
    """Combine in place, in fp32 where numbers have 16 bits; divide a whole sum."""
    if ranks == 1:
        _COMBINE[op](other, mine, out=mine)
    elif mine.dtype in (torch.float16, torch.bfloat16):
        mine.copy_((other.float() + mine.float()) / ranks)
    else:
        torch.add(other, mine, out=mine).div_(ranks)


def down_a_chain(mesh: Mesh, flat: torch.Tensor, root: int, what: str) -> None:
    """Send the root's numbers from rank to rank, chunk by chunk, until all have them.

    Raises:
        RankLost: a rank has ended.
    """
    exchange = Exchange(mesh, what)
    place = (mesh.rank - root) % mesh.size
    right, left = (mesh.rank + 1) % mesh.size, (mesh.rank - 1) % mesh.size
    for piece in flat.split(max(1, CHUNK // flat.itemsize)):
        data = as_bytes(piece)
        passes_on = place < mesh.size - 1
        if place == 0:
            exchange.send(right, data)
        else:
            exchange.receive(
                left,
                data,
                (lambda data=data: exchange.send(right, data)) if passes_on else None,
            )
    exchange.run()
