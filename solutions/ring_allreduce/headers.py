"""What each rank says of a call before it: all hear all, so all find what differs."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from solutions.ring_allreduce.mesh import Exchange, Mesh

OPS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX")
DTYPES = (
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8,
    torch.uint8, torch.int32, torch.int64, torch.bool, torch.complex64,
    torch.complex128,
)  # fmt: skip
KINDS = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "exchange")
_DIMS = 8

# Number of the call, kind, op, dtype, dimensions, device, root, bytes that follow.
_LAYOUT = struct.Struct(f"<IbbbbbiQ{_DIMS}q")


class RanksDiffer(ValueError):
    """What ranks gave to one call does not fit together."""


@dataclass(frozen=True)
class Header:
    """One rank's call.

    Args:
        kind: which function.
        op: how numbers are combined; for those that combine none, ``""``.
        dtype: of the tensor; ``None`` where this rank refuses its own arguments.
        shape: of the tensor.
        device: ``cpu`` or ``cuda``.
        root: whose numbers are sent, where one rank's are.
    """

    kind: str
    op: str = ""
    dtype: torch.dtype | None = None
    shape: tuple[int, ...] = ()
    device: str = "cpu"
    root: int = -1

    def pack(self, call: int, following: int) -> bytes:
        """Return the bytes that travel."""
        # Of more than eight dimensions, the last ones as one.
        shape = self.shape
        if len(shape) > _DIMS:
            shape = (*shape[: _DIMS - 1], math.prod(shape[_DIMS - 1 :]))
        dtype = -1 if self.dtype is None else DTYPES.index(self.dtype)
        op = OPS.index(self.op) if self.op else -1
        dims = (*shape, *[0] * (_DIMS - len(shape)))
        return _LAYOUT.pack(
            call, KINDS.index(self.kind), op, dtype, len(self.shape),
            self.device == "cuda", self.root, following, *dims,
        )  # fmt: skip

    @staticmethod
    def unpack(data: bytes | bytearray) -> tuple[int, Header, int]:
        """Return the call's number, what was said, and how many bytes follow."""
        call, kind, op, dtype, dims, device, root, following, *shape = _LAYOUT.unpack(
            data
        )
        return (
            call,
            Header(
                KINDS[kind],
                OPS[op] if op >= 0 else "",
                DTYPES[dtype] if dtype >= 0 else None,
                tuple(shape[: min(dims, _DIMS)]),
                "cuda" if device else "cpu",
                root,
            ),
            following,
        )

    def __str__(self) -> str:
        if self.dtype is None:
            return f"{self.kind}, which refuses its own arguments"
        also = f", {self.op}" if self.op else ""
        also += f" from rank {self.root} of the group" if self.root >= 0 else ""
        dtype = str(self.dtype).removeprefix("torch.")
        return f"{self.kind} of {dtype} {self.shape} on {self.device}{also}"


def agree(
    mesh: Mesh,
    own: Header,
    payloads: Mapping[int, memoryview] | None = None,
    limit_s: float | None = None,
) -> dict[int, bytearray]:
    """Tell all what this rank calls, hear it of all, and refuse what differs.

    Args:
        mesh: the group's connections.
        own: this rank's call.
        payloads: what follows the header, by rank: small messages need no second one.
        limit_s: after how long ranks that are only late are given up.

    Returns:
        What followed each rank's header.

    Raises:
        RanksDiffer: on every rank, if any two differ.
        RankLost: a rank has ended.
    """
    payloads = payloads or {}
    mesh.calls += 1
    call = mesh.calls % 2**32
    exchange = Exchange(mesh, own.kind)
    said: dict[int, tuple[int, Header]] = {mesh.rank: (call, own)}
    got: dict[int, bytearray] = {}

    def listen(peer: int) -> None:
        raw = bytearray(_LAYOUT.size)

        def heard() -> None:
            number, header, following = Header.unpack(raw)
            said[peer] = (number, header)
            got[peer] = bytearray(following)
            exchange.receive(peer, memoryview(got[peer]))

        exchange.receive(peer, memoryview(raw), heard)

    for peer in mesh.sockets:
        payload = payloads.get(peer, memoryview(b""))
        exchange.send(peer, memoryview(own.pack(call, len(payload))))
        exchange.send(peer, payload)
        listen(peer)
    exchange.run(limit_s)
    refused = any(header.dtype is None for _, header in said.values())
    # Numbers differ only where a program was begun anew on some ranks; kinds say more.
    if refused or len(set(said.values())) > 1:
        lines = [f"  rank {mesh.names[peer]}: {said[peer][1]}" for peer in sorted(said)]
        raise RanksDiffer(
            f"{own.kind}: ranks of one group called it with what does not fit "
            "together; all have to give the same shape, dtype, op and kind of "
            "device, in the same order of calls.\n" + "\n".join(lines)
        )
    return got


def name_of(op: Any) -> str:
    """Return the name of an op, or '' for one that is not known here."""
    name = getattr(op, "name", "")
    return name if name in OPS and op == getattr(dist.ReduceOp, name) else ""


def trouble_with(tensor: object, op: str, what: str = "the tensor") -> str:
    """Say what is wrong with a tensor for an op; '' for nothing."""
    if not isinstance(tensor, torch.Tensor):
        return f"{what} is {type(tensor).__name__}; pass a torch.Tensor"
    if tensor.layout != torch.strided or tensor.device.type not in ("cpu", "cuda"):
        return (
            f"{what} is {tensor.layout} on {tensor.device}; wanted a dense tensor on "
            "the CPU or an NVIDIA GPU"
        )
    if tensor.dtype not in DTYPES:
        names = ", ".join(str(one).removeprefix("torch.") for one in DTYPES)
        return f"{what} is {tensor.dtype}; wanted one of {names}"
    if op == "AVG" and not (tensor.is_floating_point() or tensor.is_complex()):
        return f"AVG of {tensor.dtype} has no whole result; sum, then divide"
    if tensor.is_complex() and op not in ("", "SUM", "AVG"):
        return f"{op} of {tensor.dtype} is not defined; SUM and AVG are"
    return ""
