"""Which kernel of ``peers.cu`` a collective launches, and with which signs.

Nothing here waits for the GPU, and no host waits for another, but at the first call of
a kernel: a module that is loaded while another rank's kernel spins may wait for it, so
all ranks have loaded it before any launches. Counts live on the host: calls cannot be
captured in a CUDA graph.
"""

from __future__ import annotations

import ctypes
import zlib
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist

import kernelwright as kw
from kernelwright.cuda.gpu import calls
from solutions.ring_allreduce.gpu_transport import (
    BLOCKS,
    PACK,
    PART,
    THREADS,
    Peers,
)
from solutions.ring_allreduce.headers import OPS, Header, RanksDiffer, agree
from solutions.ring_allreduce.mesh import Mesh, RankLost

_HERE = Path(__file__).parent
ROUNDS = 3
"""Of a large message, at least, where its chunks need not be smaller than a part."""
REDUCES, GATHERS = 1, 2
_DOES = {
    "all_reduce": REDUCES | GATHERS, "reduce_scatter": REDUCES,
    "all_gather": GATHERS, "broadcast": GATHERS,
}  # fmt: skip
_CPP = {
    torch.float32: "float", torch.float64: "double", torch.float16: "__half",
    torch.bfloat16: "__nv_bfloat16", torch.int32: "int", torch.int64: "long long",
    torch.int8: "signed char", torch.uint8: "unsigned char",
}  # fmt: skip
_OF_BOOLS = {"SUM": "MAX", "MAX": "MAX", "PRODUCT": "MIN", "MIN": "MIN"}


def collective(
    group: dist.ProcessGroup,
    mesh: Mesh,
    header: Header,
    tensors: tuple[torch.Tensor, ...],
) -> None:
    """Queue a collective on the current stream.

    Args:
        group: of the ranks.
        mesh: its connections.
        header: what is called.
        tensors: what is sent, and where the result goes; one for both in place.

    Raises:
        RankLost, RanksDiffer: what a call before this one met.
    """
    x, out = tensors[0].detach(), tensors[-1].detach()
    if mesh.size == 1:
        if tensors[0] is not tensors[-1]:
            out.copy_(x.reshape(out.shape))
        return
    with torch.no_grad(), torch.cuda.device(x.device), mesh.lock:
        caller = _callers.setdefault(group, {}).get(x.device.index)
        if caller is None:
            caller = _callers[group][x.device.index] = Caller(mesh, x.device)
        from_ = _numbers(x)
        to = from_ if tensors[0] is tensors[-1] else _numbers(out)
        queued = caller.call(header, from_, to)
        if to.data_ptr() != out.data_ptr():
            out.copy_(_as(to, out))
        if not x.is_complex():
            caller.queued[_like(header.kind, header.op, header.root, x, out)] = queued


def again(
    group: dist.ProcessGroup,
    kind: str,
    op: str,
    root: int,
    x: torch.Tensor,
    out: torch.Tensor,
) -> bool:
    """Queue a collective of tensors like those of a call before, if there was one.

    A small message takes a few microseconds on its way; to describe its call anew, as
    `collective` does, takes longer.

    Args:
        group: of the ranks.
        kind: which function; with `op` and `root` what a header says.
        op: how numbers are combined.
        root: whose numbers are sent.
        x: what is sent; a tensor on a GPU, as is `out`.
        out: where the result goes.

    Returns:
        Whether it was queued; otherwise `collective` is to be called.

    Raises:
        RankLost, RanksDiffer: as `collective`.
    """
    caller = _callers.get(group, _NONE).get(x.get_device())
    if caller is None:
        return False
    queued = caller.queued.get(_like(kind, op, root, x, out))
    if queued is None or not (_plain(x) and (x is out or _plain(out))):
        return False
    with caller.mesh.lock:
        caller.launch(queued, x.data_ptr(), out.data_ptr())
    return True


def _like(
    kind: str, op: str, root: int, x: torch.Tensor, out: torch.Tensor
) -> tuple[object, ...]:
    """Return what two calls have in common that differ only in addresses."""
    device = out.get_device()
    return kind, op, root, x.dtype, out.dtype, x.shape, out.shape, device


def _plain(x: torch.Tensor) -> bool:
    return x.layout is torch.strided and x.is_contiguous()


class _Arguments(ctypes.Structure):
    """A kernel's parameters, and where the driver finds a pointer to each."""

    def __init__(self, *given: int) -> None:
        super().__init__(*given)
        at = ctypes.addressof(self)
        fields = [getattr(type(self), field[0]) for field in self._fields_]
        self._pointers = (ctypes.c_void_p * len(fields))(
            *(at + field.offset for field in fields)
        )
        self.pointers_at = ctypes.addressof(self._pointers)


_POINTERS = [(name, ctypes.c_void_p) for name in ("boxes", "signs", "trouble")]
_POINTERS += [(name, ctypes.c_void_p) for name in ("x", "out")]
_LAST = [
    ("rank", ctypes.c_int), ("ranks", ctypes.c_int), ("kind", ctypes.c_uint),
    ("count", ctypes.c_uint), ("limit", ctypes.c_longlong),
]  # fmt: skip


class OnceArguments(_Arguments):
    """The parameters of ``one_shot``."""

    _fields_ = (
        *_POINTERS, ("n", ctypes.c_longlong), ("room", ctypes.c_longlong), *_LAST,
    )  # fmt: skip


class ChunkArguments(_Arguments):
    """The parameters of ``two_shot``."""

    _fields_ = (
        *_POINTERS, ("n", ctypes.c_longlong), ("segment", ctypes.c_longlong),
        ("room", ctypes.c_longlong), ("parts", ctypes.c_int), ("root", ctypes.c_int),
        *_LAST,
    )  # fmt: skip


class Queued(NamedTuple):
    """A launch that was queued once: all of its parameters but addresses and counts."""

    kernel: str
    blocks: int
    rounds: int
    given: OnceArguments | ChunkArguments


class Caller:
    """What one rank launches on its GPU for a group.

    Args:
        mesh: the group's connections.
        device: the rank's GPU.

    Attributes:
        queued: launches, by what calls like theirs have in common.
    """

    def __init__(self, mesh: Mesh, device: torch.device) -> None:
        self.mesh, self.peers = mesh, Peers(mesh, device)
        self.queued: dict[tuple[object, ...], Queued] = {}
        self._kinds: dict[Header, int] = {}
        self._calls: dict[int, Header] = {}
        self._loaded: set[tuple[str, torch.dtype | None, str]] = set()
        self._small = 0  # how many small messages there were
        self._rounds = 0  # how many rounds of large ones
        self._stream: torch.cuda.Stream | None = None
        self._stream_at = 0  # its handle, which is quicker to compare
        # Signs are out of step after a call that failed: none can follow it.
        self._failed: Exception | None = None

    def call(self, header: Header, x: torch.Tensor, out: torch.Tensor) -> Queued:
        """Queue one collective of flat tensors; return what to `launch` again."""
        self._refuse_after_failure()
        kind = self._kinds.get(header)
        if kind is None:
            kind = self._kinds[header] = zlib.crc32(header.pack(0, 0)[4:])
            self._calls[kind] = header
        op = header.op or "SUM"
        op = _OF_BOOLS[op] if header.dtype == torch.bool else op
        dtype = _CPP[x.dtype]
        small = f"one_shot<{dtype},{OPS.index(op)}>"
        large = f"two_shot<{dtype},{OPS.index(op)},{_DOES[header.kind]}>"
        if (header.kind, header.dtype, op) not in self._loaded:
            for name in (small, large):
                _load(name, self.peers.device.index)
            agree(self.mesh, header)
            self._loaded.add((header.kind, header.dtype, op))
        if header.kind == "all_reduce" and x.nbytes <= self.peers.room:
            queued = self._one_shot(small, kind, x.nbytes, x.numel())
        else:
            n = max(x.numel(), out.numel())
            queued = self._two_shot(large, kind, header, x.itemsize, n)
        self.launch(queued, x.data_ptr(), out.data_ptr())
        return queued

    def launch(self, queued: Queued, x: int, out: int) -> None:
        """Queue a launch with other addresses, and the counts that are due."""
        self._refuse_after_failure()
        self._follow()
        kernel, blocks, rounds, given = queued
        given.x, given.out = x, out
        if isinstance(given, OnceArguments):
            self._small += 1
            given.boxes, given.signs = self.peers.once[self._small % 2]
            given.count = self._small % 2**32
        else:
            given.count = self._rounds % 2**32
            self._rounds += rounds
        _launch(kernel, blocks, self.peers.device.index, given)

    def _one_shot(self, kernel: str, kind: int, nbytes: int, n: int) -> Queued:
        peers = self.peers
        blocks = min(BLOCKS, max(1, kw.cdiv(nbytes, PACK * THREADS)))
        given = OnceArguments(
            0, 0, peers.trouble_at, 0, 0, n, peers.room // PACK, self.mesh.rank,
            self.mesh.size, kind, 0, peers.limit,
        )  # fmt: skip
        return Queued(kernel, blocks, 0, given)

    def _two_shot(
        self, kernel: str, kind: int, header: Header, itemsize: int, n: int
    ) -> Queued:
        peers, ranks, width = self.peers, self.mesh.size, PACK // itemsize
        segment = n if header.root >= 0 else n // ranks
        if header.kind == "all_reduce":
            segment = kw.cdiv(kw.cdiv(n, ranks), width) * width
        in_parts = kw.cdiv(kw.cdiv(kw.cdiv(segment, width), PART), BLOCKS)
        # Two rounds more than chunks are what a message waits for: few, of many.
        parts = min(peers.parts, max(1, in_parts // ROUNDS))
        given = ChunkArguments(
            *peers.chunks, peers.trouble_at, 0, 0, n, segment, peers.half, parts,
            header.root, self.mesh.rank, ranks, kind, 0, peers.limit,
        )  # fmt: skip
        return Queued(kernel, BLOCKS, kw.cdiv(in_parts, parts), given)

    def _refuse_after_failure(self) -> None:
        if self._failed is None:
            try:
                self.peers.check(self._calls)
            except (RankLost, RanksDiffer) as error:
                self._failed = error
        if self._failed is not None:
            raise self._failed

    def _follow(self) -> None:
        """Let a launch on another stream wait for those before."""
        device = self.peers.device
        if self._stream and calls().stream(device.index) == self._stream_at:
            return
        stream = torch.cuda.current_stream(device)
        if self._stream:
            stream.wait_stream(self._stream)
        self._stream, self._stream_at = stream, stream.cuda_stream


def _launch(kernel: str, blocks: int, device: int, given: _Arguments) -> None:
    """Queue a kernel with its parameters packed already."""
    _program(kernel).queue(
        kernel, (blocks, 1, 1), (THREADS, 1, 1), 0, given.pointers_at, device
    )


@cache
def _module() -> Any:
    text = (_HERE / "peers.cu").read_text(encoding="utf-8")
    return kw.cuda.compile(text, name="peers.cu", backend="gpu")


@cache
def _program(kernel: str) -> Any:
    return _module().program(kernel)


def _load(kernel: str, device: int) -> None:
    """Compile a kernel and load it on a GPU, so that no launch has to."""
    _program(kernel).handle(device, kernel, 0)


def _numbers(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor's numbers in one row of a type that kernels know."""
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    flat = tensor.contiguous().view(-1)
    return flat.view(torch.uint8) if flat.dtype == torch.bool else flat


def _as(flat: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Return numbers in one row as a tensor of another's type and shape."""
    if tensor.is_complex():
        return torch.view_as_complex(flat.view(*tensor.shape, 2))
    return flat.view(tensor.dtype).view(tensor.shape)


_NONE: dict[int, Caller] = {}
_callers: WeakKeyDictionary[dist.ProcessGroup, dict[int, Caller]] = WeakKeyDictionary()
