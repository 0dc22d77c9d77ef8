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
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist

import kernelwright as kw
from solutions.ring_allreduce.gpu_transport import (
    BLOCKS,
    CHUNK,
    ONCE,
    PACK,
    THREADS,
    Peers,
)
from solutions.ring_allreduce.headers import OPS, Header, RanksDiffer, agree
from solutions.ring_allreduce.mesh import Mesh, RankLost

_HERE = Path(__file__).parent
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
        caller.call(header, from_, to)
        if to.data_ptr() != out.data_ptr():
            out.copy_(_as(to, out))


class Caller:
    """What one rank launches on its GPU for a group.

    Args:
        mesh: the group's connections.
        device: the rank's GPU.
    """

    def __init__(self, mesh: Mesh, device: torch.device) -> None:
        self.peers = Peers(mesh, device)
        self._mesh = mesh
        self._kinds: dict[Header, int] = {}
        self._calls: dict[int, Header] = {}
        self._loaded: set[tuple[str, torch.dtype | None, str]] = set()
        self._small = 0  # how many small messages there were
        self._rounds = 0  # how many rounds of large ones
        self._stream: torch.cuda.Stream | None = None
        # Signs are out of step after a call that failed: none can follow it.
        self._failed: Exception | None = None

    def call(self, header: Header, x: torch.Tensor, out: torch.Tensor) -> None:
        """Queue one collective of flat tensors."""
        if self._failed is None:
            try:
                self.peers.check(self._calls)
            except (RankLost, RanksDiffer) as error:
                self._failed = error
        if self._failed is not None:
            raise self._failed
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
            agree(self._mesh, header)
            self._loaded.add((header.kind, header.dtype, op))
        self._follow(torch.cuda.current_stream())
        if header.kind == "all_reduce" and x.nbytes <= ONCE // (self._mesh.size - 1):
            self._one_shot(small, kind, x, out)
        else:
            self._two_shot(large, kind, header, x, out)

    def _one_shot(
        self, kernel: str, kind: int, x: torch.Tensor, out: torch.Tensor
    ) -> None:
        self._small += 1
        peers = self.peers
        boxes, signs = peers.once[self._small % 2]
        blocks = min(BLOCKS, max(1, kw.cdiv(x.nbytes, PACK * THREADS)))
        _launch(
            kernel, blocks, peers.device.index, OnceArguments(
                boxes, signs, peers.trouble_at, x.data_ptr(), out.data_ptr(),
                x.numel(), ONCE // PACK, self._mesh.rank, self._mesh.size, kind,
                self._small % 2**32, peers.limit,
            ),
        )  # fmt: skip

    def _two_shot(
        self, kernel: str, kind: int, header: Header, x: torch.Tensor, out: torch.Tensor
    ) -> None:
        peers, ranks = self.peers, self._mesh.size
        n, width = max(x.numel(), out.numel()), PACK // x.itemsize
        segment = n if header.root >= 0 else n // ranks
        if header.kind == "all_reduce":
            segment = kw.cdiv(kw.cdiv(n, ranks), width) * width
        rounds = kw.cdiv(kw.cdiv(kw.cdiv(segment, width), CHUNK), BLOCKS)
        _launch(
            kernel, BLOCKS, peers.device.index, ChunkArguments(
                *peers.chunks, peers.trouble_at, x.data_ptr(), out.data_ptr(), n,
                segment, header.root, self._mesh.rank, ranks, kind,
                self._rounds % 2**32, peers.limit,
            ),
        )  # fmt: skip
        self._rounds += rounds

    def _follow(self, stream: torch.cuda.Stream) -> None:
        """Let a launch on another stream wait for those before."""
        if self._stream is not None and self._stream != stream:
            stream.wait_stream(self._stream)
        self._stream = stream


_POINTERS = [(name, ctypes.c_void_p) for name in ("boxes", "signs", "trouble")]
_POINTERS += [(name, ctypes.c_void_p) for name in ("x", "out")]
_LAST = [
    ("rank", ctypes.c_int), ("ranks", ctypes.c_int), ("kind", ctypes.c_uint),
    ("count", ctypes.c_uint), ("limit", ctypes.c_longlong),
]  # fmt: skip


class OnceArguments(ctypes.Structure):
    """The parameters of ``one_shot``."""

    _fields_ = (
        *_POINTERS, ("n", ctypes.c_longlong), ("room", ctypes.c_longlong), *_LAST,
    )  # fmt: skip


class ChunkArguments(ctypes.Structure):
    """The parameters of ``two_shot``."""

    _fields_ = (
        *_POINTERS, ("n", ctypes.c_longlong), ("segment", ctypes.c_longlong),
        ("root", ctypes.c_int), *_LAST,
    )  # fmt: skip


def _launch(kernel: str, blocks: int, device: int, given: ctypes.Structure) -> None:
    """Queue a kernel with its parameters packed already."""
    at = ctypes.addressof(given)
    offsets = _offsets(type(given))
    pointers = (ctypes.c_void_p * len(offsets))(*(at + offset for offset in offsets))
    _program(kernel).queue(
        kernel, (blocks, 1, 1), (THREADS, 1, 1), 0, ctypes.addressof(pointers), device
    )


@cache
def _offsets(arguments: type[ctypes.Structure]) -> tuple[int, ...]:
    return tuple(getattr(arguments, name).offset for name, _ in arguments._fields_)


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


_callers: WeakKeyDictionary[dist.ProcessGroup, dict[int, Caller]] = WeakKeyDictionary()
