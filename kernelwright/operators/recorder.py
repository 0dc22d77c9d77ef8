"""Watching one call: what it allocates, what torch computes, what it launches."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.graph import increment_version
from torch.utils._pytree import tree_iter

from kernelwright.cuda.backends import Dim3, Program
from kernelwright.cuda.watch import Varying, watched
from kernelwright.operators.memory import (
    Address,
    Constant,
    Number,
    Parameter,
)
from kernelwright.torch_mode import QuickMode

_aten = torch.ops.aten
_ALLOCATIONS = {
    _aten.empty.memory_format,
    _aten.empty_like.default,
    _aten.empty_strided.default,
    _aten.new_empty.default,
    _aten.new_empty_strided.default,
}


@dataclass(frozen=True)
class Name:
    """A tensor of the recording, in the arguments of one of torch's operations."""

    name: str


@dataclass(frozen=True)
class Allocate:
    """Memory for a tensor, of which nothing is known."""

    name: str
    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class Zeros:
    """The memory of ``zeros_between_launches``."""

    name: str
    count: int


@dataclass(frozen=True)
class Compute:
    """An operation of torch's; a view, or one that reads and writes."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    named: dict[str, Any]
    names: tuple[str | None, ...]
    many: bool
    view: bool


@dataclass(frozen=True)
class Launch:
    """A kernel on the device.

    Args:
        program: holds the kernel: a ``Program``, or what Triton compiled.
        kernel: its name.
        grid, block: as the driver takes them.
        shared: bytes of dynamic shared memory.
        parameters: in order.
    """

    program: Any
    kernel: str
    grid: Dim3
    block: Dim3
    shared: int
    parameters: tuple[Parameter, ...]


Step = Allocate | Zeros | Compute | Launch


class Recorder(QuickMode):
    """Records what happens on this thread while it is entered.

    Args:
        inputs: the call's tensors, by the expression that fetches each.
    """

    def __init__(self, inputs: dict[str, torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.steps: list[Step] = []
        self.refusal: str | None = None
        # Tensors are known by identity, so none of them may go before the end.
        self._known: dict[int, tuple[str, torch.Tensor]] = {}
        # Where a view's memory begins: the tensor that has it, and bytes into it.
        self._roots: dict[str, Address] = {}
        # Memory that was allocated, and that nothing seen here has written.
        self._blank: set[str] = set()
        self._paused = False
        self._device = next(tensor.device for tensor in inputs.values())
        for name, tensor in inputs.items():
            self._learn(tensor, name)

    def refuse(self, reason: str) -> None:
        """Say why this call cannot be repeated; the first reason stays."""
        self.refusal = self.refusal or reason

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Record what is done within, on this thread."""
        before = watched.watcher
        watched.watcher = self
        try:
            with self:
                yield
        finally:
            watched.watcher = before

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Overlook what is done within: it is a launch's own business."""
        before, self._paused = self._paused, True
        watcher, watched.watcher = watched.watcher, None
        try:
            with torch._C.DisableTorchFunction():  # for whoever looks on
                yield
        finally:
            self._paused, watched.watcher = before, watcher

    def name_of(self, tensor: torch.Tensor) -> str | None:
        """Return what a tensor is called here."""
        known = self._known.get(id(tensor))
        return known and known[0]

    def tensor(self, name: str) -> torch.Tensor:
        """Return the tensor of a name."""
        return next(t for known, t in self._known.values() if known == name)

    def root_of(self, name: str) -> Address:
        """Return where a tensor begins: in whose memory, and how far in."""
        return self._roots[name]

    def rename(self, tensor: torch.Tensor, name: str) -> None:
        """Call a tensor by another's name from now on."""
        self._known[id(tensor)] = (name, tensor)

    def __torch_dispatch__(
        self,
        function: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Let torch do it, and write it down."""
        found = function(*args, **(kwargs or {}))
        if not self._paused and self.refusal is None:
            self._note(function, args, kwargs or {}, found)
        return found

    def _note(
        self, function: Any, args: tuple[Any, ...], named: dict[str, Any], found: Any
    ) -> None:
        many = isinstance(found, (tuple, list))
        results = list(found) if many else [found]
        if not all(isinstance(one, torch.Tensor) for one in results):
            if any(isinstance(one, torch.Tensor) for one in tree_iter((args, named))):
                self.refuse(f"{function} reads a value from the device")
            return
        if any(one.device != self._device for one in results):
            self.refuse(f"{function} leaves the device")
            return
        if function is _aten.as_strided.default and (len(args) > 3 or named):
            self.refuse("a view says where in memory it begins")
            return
        if function in _ALLOCATIONS:
            name = self._learn(found)
            self.steps.append(
                Allocate(name, tuple(found.shape), found.stride(), found.dtype)
            )
            if found.numel():
                self._blank.add(name)
            return
        arguments, options = self._mentioned(args), self._mentioned(named)
        if self.refusal:
            return
        view = self._is_view(function, args, results)
        if not view:
            self._note_use(function, args, named)
        names = tuple(
            self.name_of(one) or self._learn(one, view_of=args[0] if view else None)
            for one in results
        )
        self.steps.append(Compute(function, arguments, options, names, many, view))

    def _note_use(
        self, function: Any, args: tuple[Any, ...], named: dict[str, Any]
    ) -> None:
        """Refuse what reads memory that something unseen must have written."""
        schema = function._schema.arguments
        given = {one.name: value for one, value in zip(schema, args, strict=False)}
        for one in schema:
            roots = set(map(self._root, _tensors((given | named).get(one.name))))
            if one.alias_info is not None and one.alias_info.is_write:
                self._blank -= roots
            elif self._blank & roots:
                self.refuse(f"{function} reads what nothing seen has written")

    def _root(self, tensor: torch.Tensor) -> str:
        name = self.name_of(tensor)
        return self._roots[name].name if name else ""

    def is_blank(self, name: str) -> bool:
        """Say whether a tensor's memory was written by nothing that was seen."""
        return self._roots[name].name in self._blank

    def _is_view(
        self, function: Any, args: tuple[Any, ...], results: list[torch.Tensor]
    ) -> bool:
        if not args or not isinstance(args[0], torch.Tensor):
            return False
        if function._schema.is_mutable:
            return False
        memory = args[0].untyped_storage().data_ptr()
        return all(r.untyped_storage().data_ptr() == memory for r in results)

    def _mentioned(self, value: Any) -> Any:
        """Put names for tensors."""
        if isinstance(value, torch.Tensor):
            name = self.name_of(value)
            if name is None:
                self.refuse("a tensor from elsewhere takes part")
                return None
            return Name(name)
        if type(value) in (tuple, list):
            return type(value)(map(self._mentioned, value))
        if type(value) is dict:
            return {key: self._mentioned(one) for key, one in value.items()}
        return value

    def _learn(
        self,
        tensor: torch.Tensor,
        name: str | None = None,
        view_of: torch.Tensor | None = None,
    ) -> str:
        name = name or f"t{len(self._known)}"
        self._known[id(tensor)] = (name, tensor)
        root = Address(name)
        if view_of is not None:
            whole = self._roots[self._known[id(view_of)][0]]
            inside = tensor.data_ptr() - view_of.data_ptr()
            root = Address(whole.name, whole.offset + inside)
        self._roots[name] = root
        return name

    def saw_launch(
        self,
        program: Program,
        kernel: str,
        grid: Dim3,
        block: Dim3,
        shared: int,
        arguments: tuple[Any, ...],
        packed: list[bytes],
    ) -> None:
        """Write a launch of CUDA C++ down."""
        parameters: list[Parameter] = []
        for value, data in zip(arguments, packed, strict=True):
            if isinstance(value, torch.Tensor):
                parameters.append(self.pointer(value))
            elif isinstance(value, Varying):
                parameters.append(self.number(value, data))
            else:
                parameters.append(Constant(data))
        self.add_launch(Launch(program, kernel, grid, block, shared, tuple(parameters)))

    def pointer(self, tensor: torch.Tensor) -> Parameter:
        """Return the parameter that a tensor becomes."""
        name = self.name_of(tensor)
        if name is None:
            self.refuse("a kernel is given a tensor from elsewhere")
            return Constant(b"")
        self._blank.discard(self._roots[name].name)
        return self._roots[name]

    def number(self, value: Varying, data: bytes) -> Parameter:
        """Return the parameter that a varying number becomes, as its bytes show."""
        codes = "fd" if isinstance(value.value, float) else "iqIQ"
        for code in codes:
            if struct.pack(f"<{code}", value.value) == data:
                return Number(value.place, code)
        self.refuse("a number that varies is converted")
        return Constant(data)

    def add_call(self, function: Callable[..., Any], tensor: torch.Tensor) -> None:
        """Write down a call that gives nothing back."""
        arguments = self._mentioned((tensor,))
        self.steps.append(Compute(function, arguments, {}, (), False, False))

    def add_launch(self, launch: Launch) -> None:
        """Write a launch down."""
        self.steps.append(launch)

    def add_zeros(self, tensor: torch.Tensor, count: int) -> None:
        """Write down that ``zeros_between_launches`` gave a tensor."""
        self.steps.append(Zeros(self._learn(tensor), count))


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_iter(value) if isinstance(leaf, torch.Tensor)]


def current_recorder() -> Recorder | None:
    """Return who records on this thread."""
    watcher = watched.watcher
    return watcher if isinstance(watcher, Recorder) else None


def mark_written(tensor: torch.Tensor) -> None:
    """Tell autograd that a kernel has changed memory which the caller gave."""
    increment_version(tensor)
    recorder = current_recorder()
    if recorder is not None:
        recorder.add_call(increment_version, tensor)


_zeros: dict[tuple[int, int], torch.Tensor] = {}


def zeros_between_launches(device: torch.device, count: int) -> torch.Tensor:
    """Return int32 zeros for a kernel that leaves zeros when it ends: made once.

    Counters of blocks that have arrived, say: the last one to come sets its counter
    back. Each stream has its own, as kernels of two streams run at the same time.

    Args:
        device: of the kernel.
        count: how many, at least.
    """
    recorder = current_recorder()
    with recorder.paused() if recorder else nullcontext():
        if device.type == "cuda":
            found = kept_zeros(device.index, current_stream(device.index), count)
        else:
            found = torch.zeros(count, dtype=torch.int32)
    if recorder is not None:
        recorder.add_zeros(found, count)
    return found


_LEAST_ZEROS = 4096


def kept_zeros(device: int, stream: int, count: int) -> torch.Tensor:
    """Return a stream's zeros."""
    key = (device, stream)
    found = _zeros.get(key)
    if found is None or found.numel() < count:
        many = max(_LEAST_ZEROS, count)
        found = torch.zeros(many, dtype=torch.int32, device=f"cuda:{device}")
        # A graph's own memory is set when the graph runs, so it serves that one only.
        if not torch.cuda.is_current_stream_capturing():
            _zeros[key] = found
    return found


def current_stream(device: int) -> int:
    """Return the handle of torch's current stream on a device."""
    return int(torch._C._cuda_getCurrentRawStream(device))
