"""The machine: programs that run at a time, their roles, and what code imports."""

from __future__ import annotations

import random
import threading
import types
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor
from triton.language import constexpr
from triton.runtime.jit import JITFunction

from kernelwright.errors import KernelFault
from kernelwright.gluon.memory import Descriptor, Pointer
from kernelwright.gluon.number import number
from kernelwright.gluon.operations import OPERATIONS, Operation
from kernelwright.gluon.threads import Threads

_DTYPES = ("float16", "bfloat16", "float32", "int32", "int64")


class _Imported:
    """What a kernel imports by a name, such as ``mbarrier``."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError(
            f"no {self._name}.{name} is emulated; give Machine(operations=...) a "
            "function that does it"
        )


class Machine:
    """What runs the kernels of a module.

    Args:
        module: has the kernel and all that it calls by name; it calls Gluon ``gl``.
        late: a wgmma reads its operands when it is waited for, else at once.
        seed: of the order in which programs start.
        operations: what ``OPERATIONS`` lacks, such as a kernel's own assembly, or has
            otherwise: functions of the machine and of what the kernel passes.

    ``names`` is what the kernel's code sees, ``threads`` what its roles wait by, and
    ``mine`` what a role has for itself: ``pid``, and ``asked``, wgmma not waited for.
    """

    def __init__(
        self, module: types.ModuleType, late: bool = True, seed: int = 0,
        operations: Mapping[str, Operation] | None = None,
    ) -> None:  # fmt: skip
        self.late, self.random = late, random.Random(seed)
        self.threads, self.mine = Threads(), threading.local()
        self.names: dict[str, Any] = dict(vars(module))
        for name, found in vars(module).items():
            if isinstance(found, JITFunction):
                code, defaults = found.fn.__code__, found.fn.__defaults__
                self.names[name] = types.FunctionType(code, self.names, name, defaults)
            elif isinstance(found, constexpr):
                self.names[name] = found.value
        self.names |= {room: _Imported(room) for room in ("gl", "mbarrier", "tma")}
        for name in _DTYPES:
            setattr(self.names["gl"], name, getattr(torch, name))
        for name, function in {**OPERATIONS, **(operations or {})}.items():
            room, _, short = name.rpartition(".")
            held = vars(self.names[room]) if room else self.names
            held[short] = partial(function, self)

    def launch(
        self, kernel: str, grid: int, resident: int, *args: Any, **known: Any
    ) -> None:
        """Run a kernel's programs, started in any order.

        Args:
            kernel: its name in the module.
            grid: programs, of one axis.
            resident: how many of them run at a time.
            args: as on a GPU, but on the CPU: tensors are contiguous, and descriptors
                may be ``Descriptor``, which knows no layout.
            known: the kernel's constants.

        Raises:
            KernelDeadlock: every role waits, and for what.
            KernelFault: too many arrivals, a wgmma not waited for, an index outside.
            NotImplementedError: an operation that nobody said how to do.
        """
        order = list(range(grid))
        self.random.shuffle(order)
        passed = [_stand_in(a) for a in args]
        waiting = iter(order)

        def programs() -> None:
            for pid in waiting:
                self._role(pid, self.names[kernel], passed, known)

        self.threads = Threads()
        self.threads.run([programs] * min(resident, grid))

    def run(self, roles: Sequence[tuple[Any, Sequence[Any]]]) -> None:
        """Run roles of this program at the same time: functions and their arguments."""
        pid = self.mine.pid
        self.threads.run([partial(self._role, pid, *role, {}) for role in roles])

    def _role(self, pid: int, function: Any, args: Any, known: dict[str, Any]) -> None:
        self.mine.pid, self.mine.asked = pid, []
        function(*args, **known)
        if self.mine.asked:
            raise KernelFault(
                "a wgmma is not waited for when its role ends; wanted "
                "warpgroup_mma_wait(0, deps=[...])",
                kind="barrier",
            )


def _stand_in(given: Any) -> Any:
    """Return what a kernel works with here in place of an argument."""
    if isinstance(given, TensorDescriptor):
        return Descriptor(given.base, given.block_shape)
    if isinstance(given, torch.Tensor):
        return Pointer(given.view(-1))
    return number(given) if isinstance(given, int) else given
