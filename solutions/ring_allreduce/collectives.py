"""The four collectives, for tensors on the CPU and on GPUs."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist

from solutions.ring_allreduce import on_gpus
from solutions.ring_allreduce.headers import (
    Header,
    RanksDiffer,
    agree,
    name_of,
    trouble_with,
)
from solutions.ring_allreduce.mesh import Mesh, RankLost, mesh_of
from solutions.ring_allreduce.schedules import (
    Ring,
    as_bytes,
    down_a_chain,
    in_order,
    is_small,
    segments,
)

ReduceOp = dist.ReduceOp
SUM = dist.ReduceOp.SUM


class Handle:
    """A collective on its way; ``wait`` ends when its result is there."""

    def __init__(self, done: Future[None] | None = None) -> None:
        self._done = done

    def wait(self) -> None:
        """Wait for the result; raise here what went wrong.

        For tensors on a GPU the current stream waits, as with torch.distributed.
        """
        if self._done is not None:
            self._done.result()

    def is_completed(self) -> bool:
        """Say whether ``wait`` would return at once."""
        return self._done is None or self._done.done()


def all_reduce(
    tensor: torch.Tensor,
    group: dist.ProcessGroup | None = None,
    op: Any = SUM,
    *,
    async_op: bool = False,
) -> Handle | None:
    """Combine a tensor of all ranks, in place: ``x = x[rank 0] + … + x[rank n-1]``.

    Args:
        tensor: any shape, the same on all ranks; CPU or CUDA, any dtype of gloo's.
        group: of torch.distributed; ``None`` for all ranks.
        op: SUM, AVG, PRODUCT, MIN or MAX. All ranks get the same bits; how 16-bit
            numbers are summed stands in ``schedules.py``.
        async_op: return at once, with a ``Handle``. The tensor is not to be touched
            before its ``wait``. Calls of one group happen in the order they are made.

    Returns:
        The handle, or ``None`` when all is done.

    Raises:
        TypeError: an argument that this rank refuses; others raise RanksDiffer.
        RanksDiffer: on every rank, where what they gave does not fit together.
        RankLost: on every rank, where one has ended.

    Cost: 2 (n - 1) / n of the tensor's bytes sent a rank; (n - 1) times them where
    that is at most 256 KB, on GPUs 1 MB. A rank keeps 2 MB of its GPU's memory for
    small messages and up to 192 MB for large ones; of two, 64 MB and 256 MB.
    """
    name = name_of(op)
    if _again(group, "all_reduce", name, tensor, tensor):
        return Handle() if async_op else None
    trouble = _trouble_with_op(op) or trouble_with(tensor, name)
    header = _header("all_reduce", tensor, trouble, name)

    def on_cpu(mesh: Mesh) -> None:
        flat, back = _flat(tensor)
        small = is_small(flat.nbytes, mesh.size)
        got = agree(mesh, header, _to_all(mesh, flat) if small else None)
        if mesh.size == 1:
            return
        if small:
            in_order(_parts(mesh, flat, got), name, flat)
        else:
            ring = Ring(mesh, flat, segments(flat.numel(), mesh.size), "all_reduce")
            ring.run(0, 2 * (mesh.size - 1), name)
        back()

    return _call(group, header, trouble, on_cpu, async_op, (tensor,))


def reduce_scatter(
    output: torch.Tensor,
    tensor: torch.Tensor,
    group: dist.ProcessGroup | None = None,
    op: Any = SUM,
    *,
    async_op: bool = False,
) -> Handle | None:
    """Combine a tensor of all ranks; each keeps its own n-th of the result.

    Args:
        output: (…) with ``tensor.numel() / n`` numbers; rank r gets the r-th part.
        tensor: n times as many numbers, the same shape on all ranks; not changed.
        group: as of ``all_reduce``.
        op: as of ``all_reduce``.
        async_op: as of ``all_reduce``.

    Returns, Raises: as ``all_reduce``.

    Cost: (n - 1) / n of the tensor's bytes sent a rank.
    """
    name = name_of(op)
    if _again(group, "reduce_scatter", name, tensor, output):
        return Handle() if async_op else None
    trouble = _trouble_with_op(op) or trouble_with(tensor, name)
    trouble = trouble or _misfit(output, tensor, _size(group), "output", "tensor")
    header = _header("reduce_scatter", tensor, trouble, name)

    def on_cpu(mesh: Mesh) -> None:
        flat, _ = _flat(tensor)
        own, back = _flat(output)
        parts = segments(flat.numel(), mesh.size)
        # Each is sent its part alone.
        small = is_small(own.nbytes, mesh.size)
        mine = {p: as_bytes(flat[parts[p]]) for p in mesh.sockets} if small else None
        got = agree(mesh, header, mine)
        if small:
            in_order(_parts(mesh, flat[parts[mesh.rank]], got), name, own)
        else:
            flat = flat.clone()
            Ring(mesh, flat, parts, "reduce_scatter").run(0, mesh.size - 1, name)
            own.copy_(flat[parts[mesh.rank]])
        back()

    return _call(group, header, trouble, on_cpu, async_op, (tensor, output))


def all_gather(
    output: torch.Tensor,
    tensor: torch.Tensor,
    group: dist.ProcessGroup | None = None,
    *,
    async_op: bool = False,
) -> Handle | None:
    """Put the tensors of all ranks one behind the other, on all of them.

    Args:
        output: (…) with ``n * tensor.numel()`` numbers.
        tensor: the same shape on all ranks; not changed.
        group: as of ``all_reduce``.
        async_op: as of ``all_reduce``.

    Returns, Raises: as ``all_reduce``.

    Cost: (n - 1) times the tensor's bytes sent a rank.
    """
    if _again(group, "all_gather", "", tensor, output):
        return Handle() if async_op else None
    trouble = trouble_with(tensor, "")
    trouble = trouble or _misfit(tensor, output, _size(group), "tensor", "output")
    header = _header("all_gather", tensor, trouble)

    def on_cpu(mesh: Mesh) -> None:
        mine, _ = _flat(tensor)
        flat, back = _flat(output)
        parts = segments(flat.numel(), mesh.size)
        small = is_small(mine.nbytes, mesh.size)
        got = agree(mesh, header, _to_all(mesh, mine) if small else None)
        if small:
            found = _parts(mesh, mine, got)
            for part, numbers in zip(parts, found, strict=True):
                flat[part].copy_(numbers)
        else:
            flat[parts[mesh.rank]].copy_(mine)
            ring = Ring(mesh, flat, parts, "all_gather")
            ring.run(mesh.size - 1, 2 * (mesh.size - 1), "")
        back()

    return _call(group, header, trouble, on_cpu, async_op, (tensor, output))


def broadcast(
    tensor: torch.Tensor,
    src: int = 0,
    group: dist.ProcessGroup | None = None,
    *,
    async_op: bool = False,
) -> Handle | None:
    """Copy one rank's tensor to all others, in place.

    Args:
        tensor: the same shape on all ranks.
        src: the rank whose tensor it is, as the default group numbers it.
        group: as of ``all_reduce``.
        async_op: as of ``all_reduce``.

    Returns, Raises: as ``all_reduce``; ValueError: ``src`` is not in the group.

    Cost: the tensor's bytes sent a rank; by the root alone, and to each, where that
    is at most 256 KB.
    """
    found = _group(group)
    root = dist.get_group_rank(found, src)
    if _again(found, "broadcast", "", tensor, tensor, root):
        return Handle() if async_op else None
    trouble = trouble_with(tensor, "")
    header = _header("broadcast", tensor, trouble, root=root)

    def on_cpu(mesh: Mesh) -> None:
        flat, back = _flat(tensor)
        small = is_small(flat.nbytes, mesh.size)
        sends = small and mesh.rank == root
        got = agree(mesh, header, _to_all(mesh, flat) if sends else None)
        if small and mesh.rank != root:
            flat.copy_(_parts(mesh, flat, got)[root])
        elif not small:
            down_a_chain(mesh, flat, root, "broadcast")
        back()

    return _call(group, header, trouble, on_cpu, async_op, (tensor,))


def _again(
    group: dist.ProcessGroup | None,
    kind: str,
    op: str,
    x: Any,
    out: Any,
    root: int = -1,
) -> bool:
    """Queue a call on GPUs by the short way, where one like it went the long one."""
    if not all(isinstance(t, torch.Tensor) and t.is_cuda for t in (x, out)):
        return False
    return on_gpus.again(_group(group), kind, op, root, x, out)


_workers: WeakKeyDictionary[dist.ProcessGroup, ThreadPoolExecutor] = WeakKeyDictionary()


def _call(
    group: dist.ProcessGroup | None,
    header: Header,
    trouble: str,
    on_cpu: Callable[[Mesh], None],
    async_op: bool,
    tensors: tuple[torch.Tensor, ...],
) -> Handle | None:
    """Do it now, or in the group's turn on a thread of its own."""
    found = _group(group)
    if not trouble and header.device == "cuda":
        on_gpus.collective(found, mesh_of(found), header, tensors)
        return Handle() if async_op else None

    def run() -> None:
        mesh = mesh_of(found)
        with mesh.lock, torch.no_grad():
            if not trouble:
                on_cpu(mesh)
                return
            # So that no other rank waits for this one. Of tensors on GPUs the others
            # may have no need to hear of each other any more.
            limit_s = 8.0 if getattr(tensors[0], "is_cuda", False) else None
            try:
                agree(mesh, header, limit_s=limit_s)
            except (RanksDiffer, RankLost) as error:
                raise TypeError(f"{header.kind}: {trouble}.") from error
            raise TypeError(f"{header.kind}: {trouble}.")

    worker = _workers.get(found)
    if worker is None and not async_op:
        run()
        return None
    if worker is None:
        worker = _workers[found] = ThreadPoolExecutor(1, "ring_allreduce")
    done = worker.submit(run)
    if async_op:
        return Handle(done)
    done.result()
    return None


def _group(group: dist.ProcessGroup | None) -> dist.ProcessGroup:
    """Return the group that is meant, of which this rank is one."""
    if not dist.is_initialized():
        raise RuntimeError(
            "There is no group of ranks yet: call torch.distributed."
            "init_process_group('gloo') first, in a program that torchrun starts."
        )
    found = dist.group.WORLD if group is None else group
    if not isinstance(found, dist.ProcessGroup):
        raise ValueError(
            f"rank {dist.get_rank()} is not in the group that it was given: only "
            "the group's own ranks call its collectives."
        )
    return found


def _size(group: dist.ProcessGroup | None) -> int:
    return _group(group).size()


def _header(
    kind: str, tensor: Any, trouble: str, op: str = "", root: int = -1
) -> Header:
    if trouble:
        return Header(kind)
    return Header(kind, op, tensor.dtype, tuple(tensor.shape), tensor.device.type, root)


def _trouble_with_op(op: Any) -> str:
    if name_of(op):
        return ""
    return f"op is {op!r}; wanted ReduceOp.SUM, AVG, PRODUCT, MIN or MAX"


def _misfit(part: Any, whole: Any, size: int, small: str, large: str) -> str:
    """Say what keeps one tensor from being n times another; '' for nothing."""
    for tensor, what in ((part, small), (whole, large)):
        trouble = trouble_with(tensor, "", what)
        if trouble:
            return trouble
    if part.dtype != whole.dtype or part.device != whole.device:
        return (
            f"{small} is {part.dtype} on {part.device} and {large} {whole.dtype} on "
            f"{whole.device}; wanted both alike"
        )
    if whole.numel() != size * part.numel():
        return (
            f"{large} has {whole.numel()} numbers and {small} {part.numel()}; for "
            f"{size} ranks {large} wants {size * part.numel()}"
        )
    return ""


def _flat(tensor: torch.Tensor) -> tuple[torch.Tensor, Callable[[], object]]:
    """Return a tensor's numbers in one row, and what puts them back in place."""
    real = tensor.detach()
    real = torch.view_as_real(real.resolve_conj()) if real.is_complex() else real
    flat = real.contiguous().view(-1)
    if flat.data_ptr() == tensor.data_ptr():
        return flat, lambda: None
    shaped = flat.view(real.shape)
    if tensor.is_complex():
        return flat, lambda: tensor.detach().copy_(torch.view_as_complex(shaped))
    return flat, lambda: tensor.detach().copy_(shaped)


def _to_all(mesh: Mesh, flat: torch.Tensor) -> dict[int, memoryview]:
    return dict.fromkeys(mesh.sockets, as_bytes(flat))


def _parts(
    mesh: Mesh, own: torch.Tensor, got: dict[int, bytearray]
) -> list[torch.Tensor]:
    """Return what each rank sent, in the order of ranks, as numbers."""
    return [
        own
        if peer == mesh.rank or not own.numel()
        else torch.frombuffer(got[peer], dtype=own.dtype)
        if got[peer]
        else own
        for peer in range(mesh.size)
    ]
