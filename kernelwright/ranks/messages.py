"""What a rank sends and receives, in order, and what it does to it meanwhile.

A mode sees the operations of the group, and every other that touches memory which a
message still needs; the group's handles are wrapped, so that it is known who waits.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kernelwright.ranks.frames import Own, own_frame
from kernelwright.torch_mode import QuickMode


@dataclass
class Message:
    """One message of a rank, as it sees it.

    Args:
        rank: whose record it is.
        peer: the rank at the other end; -1 where any may be.
        sends: whether it is sent; else received.
        bytes: its length.
        buffer: which memory it lies in: equal for messages of one tensor's storage.
        offset: where in that memory it begins, in bytes.
        order: how many messages the rank began before it.
        line: of the author's code that began it; 0 where unknown.
        began, ended: seconds of the machine's clock, equal for all ranks; ``ended`` is
            0 where nobody waited.
    """

    rank: int
    peer: int
    sends: bool
    bytes: int
    buffer: int
    offset: int
    order: int
    line: int
    began: float
    ended: float = 0.0

    @property
    def ends(self) -> str:
        """Name its other end."""
        other = "any rank" if self.peer < 0 else f"rank {self.peer}"
        return f"{'to' if self.sends else 'from'} {other}"

    def __str__(self) -> str:
        """Name it in a sentence."""
        verb = "sends" if self.sends else "receives"
        return f"the message that line {self.line} {verb} {self.ends}"


class Pending:
    """A message's handle, as the group's ``isend`` and ``irecv`` return it."""

    def __init__(self, work: Any, message: Message, tensors: Sequence[Any]) -> None:
        self.work, self.message = work, message
        # Held, so that no other tensor comes to lie where the message still does.
        self.held = list(tensors)

    def wait(self, *arguments: Any) -> Any:
        """Wait until the memory may be used again."""
        done = self.work.wait(*arguments)
        self.message.ended = self.message.ended or time.monotonic()
        self.held.clear()
        return done

    def is_completed(self) -> bool:
        """Say whether it is through; one that asks until it is has waited."""
        done = bool(self.work.is_completed())
        if done:
            self.message.ended = self.message.ended or time.monotonic()
            self.held.clear()
        return done

    def __getattr__(self, name: str) -> Any:
        """Answer anything else as the group's own handle does."""
        return getattr(self.work, name)


class Messages(QuickMode):
    """Records the messages of one rank; used as a context by that rank alone.

    ``shares`` holds, of each operation of all ranks together such as an all-reduce,
    the bytes that a rank sends of it in a ring.

    Args:
        rank: its number.
        own: says which files hold the author's code.
    """

    def __init__(self, rank: int, own: Own) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.rank, self.own = rank, own
        self.record: list[Message] = []
        self.collectives: list[str] = []
        self.shares: list[int] = []
        self.wrong: dict[str, None] = {}
        self._under_way: list[tuple[Pending, int, int]] = []
        self._blocking = False

    @property
    def sent(self) -> list[Message]:
        """What it sent, in order."""
        return [message for message in self.record if message.sends]

    @property
    def findings(self) -> list[str]:
        """What it did that another run of it may not survive."""
        forgotten = (
            f"nobody waits for {message}: keep its handle and call wait()"
            for message in self.record
            if not message.ended
        )
        # What was never waited for is under way for good: that comes first.
        return list(dict.fromkeys((*forgotten, *self.wrong)))

    @property
    def most_at_once(self) -> int:
        """How many of its messages were under way at once, at most."""
        begun = [(message.began, 1) for message in self.record]
        through = [(message.ended, -1) for message in self.record if message.ended]
        most = now = 0
        for _, change in sorted(begun + through):
            now += change
            most = max(most, now)
        return most

    @contextmanager
    def watching(self) -> Iterator[Messages]:
        """Record what is sent and received in this block."""
        from torch.distributed import ProcessGroup

        kept = {name: getattr(ProcessGroup, name) for name in _POINT_TO_POINT}
        for name, method in kept.items():
            setattr(ProcessGroup, name, self._wrapped(method))
        try:
            with self:
                yield self
        finally:
            for name, method in kept.items():
                setattr(ProcessGroup, name, method)
            _never_waited.extend(one for one, *_ in self._under_way)

    def _wrapped(self, method: Any) -> Any:
        def begin(group: Any, tensors: Any, *rest: Any, **named: Any) -> Any:
            began = len(self.record)
            work = method(group, tensors, *rest, **named)
            if len(self.record) == began:
                return work
            pending = Pending(work, self.record[-1], tensors)
            for tensor in tensors:
                self._under_way.append((pending, *_extent(tensor)))
            return pending

        return begin

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        name = func.name()
        if not name.startswith("c10d::"):
            if self._under_way:
                self._look(func, args, kwargs or {})
        elif name in ("c10d::send", "c10d::recv_", "c10d::recv_any_source_"):
            # A message reads or writes what another one may still need.
            self._forget_ended()
            for tensor in args[0]:
                self._compare(tensor, name != "c10d::send")
            self._note(name, args)
        else:
            self.collectives.append(name.removeprefix("c10d::").rstrip("_"))
            self._share(name, args)
        return func(*args, **(kwargs or {}))

    def _share(self, name: str, args: Sequence[Any]) -> None:
        """Note what a rank sends in a ring, whichever way the library takes."""
        if name in _SHARES:
            import torch

            at, parts = _SHARES[name]
            n = torch.distributed.get_world_size()
            self.shares.append(-(-parts(n) * _nbytes(args[at]) // n))

    def _note(self, name: str, args: Sequence[Any]) -> None:
        first = args[0][0]
        peer = args[2] if name != "c10d::recv_any_source_" else -1
        storage = first.untyped_storage().data_ptr()
        self.record.append(
            Message(
                self.rank,
                peer,
                name == "c10d::send",
                sum(tensor.nbytes for tensor in args[0]),
                storage,
                first.data_ptr() - storage if first.numel() else 0,
                len(self.record),
                self._line(),
                time.monotonic(),
            )
        )

    def _look(self, func: Any, args: Sequence[Any], named: Mapping[str, Any]) -> None:
        """Find an operation that touches what a message still needs."""
        import torch

        self._forget_ended()
        # A view reads and writes nothing.
        if func.is_view or not self._under_way:
            return
        given = [*args, *(named.get(a.name) for a in func._schema.arguments)][
            : len(func._schema.arguments)
        ]
        for value, spec in zip(given, func._schema.arguments, strict=False):
            writes = spec.alias_info is not None and spec.alias_info.is_write
            tensors = value if isinstance(value, (list, tuple)) else [value]
            for tensor in tensors:
                if isinstance(tensor, torch.Tensor):
                    self._compare(tensor, writes)

    def _forget_ended(self) -> None:
        self._under_way = [one for one in self._under_way if not one[0].message.ended]

    def _compare(self, tensor: Any, writes: bool) -> None:
        begin, end = _extent(tensor)
        for pending, first, last in self._under_way:
            message = pending.message
            if begin < last and first < end and (writes or not message.sends):
                does = "writes" if writes else "reads"
                self.wrong[
                    f"line {self._line()} {does} memory of {message}, which is still "
                    "under way: wait() for it first, or take other memory"
                ] = None

    def _line(self) -> int:
        frame, _ = own_frame(sys._getframe(1), self.own)
        return frame.f_lineno if frame is not None else 0


# Gloo forgets a message whose handle is dropped before it is sent: the receiver would
# then wait for ever, and the one who forgot to wait would not be told. A rank's process
# stays until all are through, so these are held until then.
_never_waited: list[Pending] = []

_POINT_TO_POINT = ("send", "recv", "recv_anysource")

# Which argument a rank brings, and how many n-ths of its bytes a ring has it send.
_SHARES: dict[str, tuple[int, Callable[[int], int]]] = {
    "c10d::allreduce_": (0, lambda n: 2 * (n - 1)),
    "c10d::allgather_": (1, lambda n: (n - 1) * n),
    "c10d::_allgather_base_": (1, lambda n: (n - 1) * n),
    "c10d::reduce_scatter_": (1, lambda n: n - 1),
    "c10d::_reduce_scatter_base_": (1, lambda n: n - 1),
    "c10d::alltoall_": (1, lambda n: n - 1),
    "c10d::alltoall_base_": (1, lambda n: n - 1),
    "c10d::broadcast_": (0, lambda n: n),
    "c10d::reduce_": (0, lambda n: n),
    "c10d::gather_": (1, lambda n: n),
}


def _nbytes(value: Any) -> int:
    """Add up the bytes of tensors in lists, however nested."""
    if isinstance(value, (list, tuple)):
        return sum(map(_nbytes, value))
    return int(value.nbytes)


def _extent(tensor: Any) -> tuple[int, int]:
    """Return the addresses between which a tensor lies."""
    if not tensor.numel():
        return 0, 0
    last = sum(
        (size - 1) * stride
        for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )
    begin = tensor.data_ptr()
    return begin, begin + (last + 1) * tensor.element_size()
