"""What this package asks of a group of ranks: the one place that names a library.

Each function is a thin name for one of ``torch.distributed``'s; another library that
moves the same bytes, such as chapter 15's, is put in here and nowhere else. Bytes are
those that one of n ranks sends by the ring, for a tensor of B bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
import torch.distributed as dist

Group = Any
"""A ``torch.distributed.ProcessGroup``, or ``None`` for all ranks."""

# As newer versions of torch call them, and as older ones do.
_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


class Handle(Protocol):
    """An operation that is under way."""

    def wait(self) -> object:
        """Return when its result may be used: of a GPU, by what is launched next."""


def rank_and_size(group: Group) -> tuple[int, int]:
    """Return this process's rank in a group, and how many there are."""
    if not (dist.is_available() and dist.is_initialized()):
        raise RuntimeError(
            "there is no group of ranks: call torch.distributed.init_process_group "
            "first, and start the program with torchrun."
        )
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    if rank < 0:
        raise RuntimeError(
            f"rank {dist.get_rank()} is not in the group that it was given; hand over "
            "a group of which it is a member, or none for all ranks."
        )
    return rank, size


def all_reduce(tensor: torch.Tensor, group: Group = None) -> Handle:
    """Begin to add up a contiguous tensor over all ranks, in place: 2 B (n - 1) / n."""
    return _begun(dist.all_reduce, tensor, group=group)


def all_gather(out: torch.Tensor, own: torch.Tensor, group: Group = None) -> Handle:
    """Begin to put all ranks' tensors one behind the other: B (n - 1) / n of out's."""
    if dist.get_world_size(group) == 1:
        out.view(-1).copy_(own.view(-1))
        return _Done()
    return _begun(_gather, out, own, group=group)


def reduce_scatter(out: torch.Tensor, whole: torch.Tensor, group: Group) -> Handle:
    """Begin to add up ``whole`` over all ranks, of which each keeps its own part."""
    if dist.get_world_size(group) == 1:
        out.view(-1).copy_(whole.view(-1))
        return _Done()
    return _begun(_scatter, out, whole, group=group)


def broadcast(tensor: torch.Tensor, group: Group = None) -> None:
    """Overwrite a tensor with the group's first rank's."""
    _begun(dist.broadcast, tensor, group=group, group_src=0).wait()


def pass_on(
    tensors: Sequence[torch.Tensor], group: Group = None
) -> tuple[list[torch.Tensor], list[Handle]]:
    """Begin to send tensors to the next rank and to receive as many from the last.

    Returns:
        Where what comes is put, and what to wait for.
    """
    rank, size = rank_and_size(group)
    received = [torch.empty_like(tensor) for tensor in tensors]
    following, before = (rank + 1) % size, (rank - 1) % size
    both = [
        dist.P2POp(function, tensor, group=group, group_peer=peer)
        for mine, theirs in zip(tensors, received, strict=True)
        for function, tensor, peer in (
            (dist.isend, mine, following),
            (dist.irecv, theirs, before),
        )
    ]
    return received, [_Work(work) for work in dist.batch_isend_irecv(both)]


def told_by_all(words: str, group: Group = None) -> list[str]:
    """Return what every rank says, in their order."""
    said: list[Any] = [None] * dist.get_world_size(group)
    try:
        dist.all_gather_object(said, words, group=group)
    except RuntimeError as error:
        raise _lost(error) from error
    return [str(one) for one in said]


class _Done:
    def wait(self) -> None:
        """Return at once."""


class _Work:
    """An operation whose failure says on which rank it was seen, and what to do."""

    def __init__(self, work: Any) -> None:
        self.work = work

    def wait(self) -> object:
        """Wait for it.

        Raises:
            RuntimeError: a rank has ended, or did not answer within the group's time.
        """
        try:
            return self.work.wait()
        except RuntimeError as error:
            raise _lost(error) from error

    def __getattr__(self, name: str) -> Any:
        return getattr(self.work, name)


def _lost(error: RuntimeError) -> RuntimeError:
    return RuntimeError(
        f"rank {dist.get_rank()} of {dist.get_world_size()}: another rank has ended, "
        f"or did not answer within the group's timeout. What that one said last is the "
        f"cause; start all of them again from a checkpoint. ({error})"
    )


def _begun(begin: Callable[..., Any], *given: Any, **how: Any) -> Handle:
    try:
        work = begin(*given, async_op=True, **how)
    except RuntimeError as error:
        raise _lost(error) from error
    return _Done() if work is None else _Work(work)
