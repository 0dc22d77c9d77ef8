"""What a chain of torch's operations reads and writes, an operation a kernel."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from kernelwright.errors import ArgumentError

# These hand out memory, and no kernel runs.
_ALLOCATE = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}
# A random number depends on no other element either.
_ELEMENTWISE = {torch.Tag.pointwise, torch.Tag.nondeterministic_seeded}


@dataclass(frozen=True)
class Value:
    """A tensor as memory holds it; what is written again is another value.

    Args:
        key: which memory, the how-manieth time that it was written.
        name: of the function's parameter, or ``t1`` and on; of the last ``result``.
        nbytes: of the part that is read or written; a broadcast row counts once.
        offset: where that part begins.
    """

    key: tuple[int, int]
    name: str
    nbytes: int
    offset: int = 0


@dataclass(frozen=True)
class Operation:
    """One operation, and so one kernel of eager PyTorch.

    Args:
        text: as one would write it, ``t2 = mul(t1, 0.5)``.
        reads: values, each once.
        writes: likewise.
        elementwise: whether each element of the result needs one of each operand.
    """

    text: str
    reads: tuple[Value, ...]
    writes: tuple[Value, ...]
    elementwise: bool


@dataclass(frozen=True)
class Kernel:
    """Neighbouring operations that run as one kernel.

    Args:
        operations: in their order.
        reads: values that come from memory.
        writes: values that somebody needs afterwards.
    """

    operations: tuple[Operation, ...]
    reads: tuple[Value, ...]
    writes: tuple[Value, ...]

    @property
    def nbytes(self) -> int:
        """Bytes that it reads and writes."""
        return sum(value.nbytes for value in (*self.reads, *self.writes))


@dataclass(frozen=True, repr=False)
class Chain:
    """What a function of torch's operations did.

    Args:
        name: of the function.
        operations: in their order.
        inputs: values that were there before.
        results: keys of what must be in memory in the end.
    """

    name: str
    operations: tuple[Operation, ...]
    inputs: tuple[Value, ...]
    results: frozenset[tuple[int, int]]

    @property
    def launches(self) -> int:
        """Kernels that eager PyTorch launches."""
        return len(self.operations)

    @property
    def nbytes(self) -> int:
        """Bytes that they read and write."""
        return sum(kernel.nbytes for kernel in self.fused(1))

    @property
    def fused_nbytes(self) -> int:
        """Bytes that one kernel for all of it reads and writes."""
        return sum(kernel.nbytes for kernel in self.fused(self.launches))

    def fused(self, first: int) -> list[Kernel]:
        """Return the kernels that run if the first so many operations are one."""
        done = self.operations
        groups = [done[:first], *((each,) for each in done[first:])]
        found = []
        for at, group in enumerate(groups):
            later = [value.key for each in groups[at + 1 :] for value in _reads(each)]
            found.append(_kernel(group, self.results.union(later)))
        return found

    def __str__(self) -> str:
        rows = [(k.operations[0].text, k.nbytes) for k in self.fused(1)]
        rows.append((f"{self.launches} launches", self.nbytes))
        rows.append(("fused, 1 launch", self.fused_nbytes))
        return "\n".join(f"{said:<27}{size(moved):>10}" for said, moved in rows)

    __repr__ = __str__


def chain_of(function: Callable[..., Any], *tensors: torch.Tensor) -> Chain:
    """Run a function once, and return the operations that it consists of.

    Views move nothing and are left out. A tensor that an operation takes twice is
    read once. Tensors on the device ``meta`` will do: only shapes are looked at.

    Args:
        function: of torch's operations.
        tensors: its arguments.

    Raises:
        ArgumentError: it launches nothing.
    """
    recorder = _Recorder(function, tensors)
    with recorder, torch.no_grad():
        returned = function(*tensors)
    recorder.finish(returned)
    name = getattr(function, "__name__", "chain")
    if not recorder.done:
        raise ArgumentError(f"{name} launches no kernel: it makes views at most.")
    return Chain(
        "a chain" if name == "<lambda>" else name,
        tuple(recorder.done),
        tuple(recorder.inputs),
        frozenset(recorder.results),
    )


def _kernel(group: Sequence[Operation], needed: frozenset[tuple[int, int]]) -> Kernel:
    made = {value.key for each in group for value in each.writes}
    reads = {value: None for value in _reads(group) if value.key not in made}
    writes = {
        value: None
        for each in group
        for value in each.writes
        if value.key in needed or each is group[-1]
    }
    return Kernel(tuple(group), tuple(reads), tuple(writes))


def _reads(group: Sequence[Operation]) -> Iterator[Value]:
    for each in group:
        yield from each.reads


def size(nbytes: float) -> str:
    """Spell a number of bytes."""
    for unit in ("B", "KB", "MB", "GB"):
        if nbytes < 1000 or unit == "GB":
            break
        nbytes /= 1000
    return f"{nbytes:.3g} {unit}" if nbytes < 999.5 else f"{nbytes:,.0f} {unit}"


class _Recorder(TorchDispatchMode):
    """Sees each operation below autograd, as the device is asked for it."""

    def __init__(
        self, function: Callable[..., Any], tensors: Sequence[torch.Tensor]
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.done: list[Operation] = []
        self.inputs: list[Value] = []
        self.results: set[tuple[int, int]] = set()
        self._names: dict[tuple[int, int], str] = {}
        self._made = 0
        self._blank: set[int] = set()  # memory that nobody wrote to yet
        self._written: dict[int, int] = {}
        self._alive: list[torch.Tensor] = []  # or memory would be used again
        for name, tensor in zip(_parameters(function, tensors), tensors, strict=True):
            self._names.setdefault(self._key(tensor), name)
            self.inputs.append(self._value(tensor))

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        given = [t for t in tree_iter((args, kwargs)) if isinstance(t, torch.Tensor)]
        read = [self._value(t) for t in given if _memory(t) not in self._blank]
        spelled = self._spelled(args)
        out = func(*args, **kwargs)
        made = [t for t in tree_iter(out) if isinstance(t, torch.Tensor)]
        changed = func._schema.is_mutable
        name = func._schema.name.partition("::")[2]
        memories = {_memory(t) for t in made}
        moves = changed or memories - {_memory(t) for t in given}
        if name in _ALLOCATE:
            self._blank |= memories
        elif made and moves:
            self._blank -= memories
            for memory in memories if changed else ():
                self._written[memory] = self._written.get(memory, 0) + 1
            writes = [self._named(t) for t in made if t.numel()]
            left = ", ".join(value.name for value in writes)
            self.done.append(
                Operation(
                    f"{left} = {name.strip('_')}({spelled})",
                    tuple(dict.fromkeys(read)),
                    tuple(dict.fromkeys(writes)),
                    bool(_ELEMENTWISE & set(func.tags)),
                )
            )
        self._alive += [*given, *made]
        return out

    def finish(self, returned: Any) -> None:
        """Note what must be in memory when the function is done."""
        for tensor in tree_iter(returned):
            if isinstance(tensor, torch.Tensor):
                self.results.add(self._key(tensor))
        known = {value.key[0] for value in self.inputs}
        changed = {memory: n for memory, n in self._written.items() if memory in known}
        self.results |= set(changed.items())

    def _key(self, tensor: torch.Tensor) -> tuple[int, int]:
        memory = _memory(tensor)
        return memory, self._written.get(memory, 0)

    def _named(self, tensor: torch.Tensor) -> Value:
        """Give what was written a name, in the order of writing."""
        if self._key(tensor) not in self._names:
            self._made += 1
            self._names[self._key(tensor)] = f"t{self._made}"
        return self._value(tensor)

    def _value(self, tensor: torch.Tensor) -> Value:
        key = self._key(tensor)
        held = 1
        for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
            held *= size if stride else min(size, 1)
        name = self._names.setdefault(key, "constant")
        size_of = tensor.element_size()
        return Value(key, name, int(held) * size_of, int(tensor.storage_offset()))

    def _spelled(self, args: Any) -> str:
        """Write the arguments as one would, and leave out what says little."""
        said = []
        for one in args:
            if isinstance(one, torch.Tensor):
                if _memory(one) not in self._blank:
                    said.append(self._names.get(self._key(one), "constant"))
            elif isinstance(one, bool) or not isinstance(one, (int, float)):
                continue
            else:
                said.append(f"{one:.3g}")
        return ", ".join(said)


def _memory(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _parameters(
    function: Callable[..., Any], tensors: Sequence[torch.Tensor]
) -> list[str]:
    """Return what the function calls its arguments."""
    try:
        named = list(inspect.signature(function).parameters)[: len(tensors)]
    except (TypeError, ValueError):  # some of torch's have none
        named = []
    return (
        named if len(named) == len(tensors) else [f"x{i}" for i in range(len(tensors))]
    )
