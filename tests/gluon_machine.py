"""Run a Gluon kernel for Hopper on a CPU: its own source, a thread for every role.

Triton interprets no Gluon. Here the functions of a module run as the Python that they
are, on stand-ins for what they import: shared memory is a tensor that begins as NaN, an
mbarrier counts and flips its phase, and who waits longer than ``PATIENCE`` is in a
deadlock. A wgmma reads its operands as late as it may, when it is waited for, or as
early: what is overwritten or read too soon spoils the numbers.

Layouts are not emulated, nor bfloat16; the compiler checks the first.
"""

from __future__ import annotations

import random
import threading
import types
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from triton.runtime.jit import JITFunction

PATIENCE = 60.0  # seconds
ROWS = 64


class Number(torch.Tensor):
    """A tensor that divides as a GPU does, towards zero, and can be bitcast."""

    type = types.SimpleNamespace(layout=None)  # type: ignore[assignment]

    def to(self, dtype: torch.dtype, bitcast: bool = False) -> Any:
        """Convert, or take the same bits for another dtype."""
        return self.view(dtype) if bitcast else super().to(dtype)

    def __floordiv__(self, other: Any) -> Any:
        return torch.div(self, other, rounding_mode="trunc")

    def __mod__(self, other: Any) -> Any:
        return torch.fmod(self, other)


def number(value: Any) -> Any:
    """Make a Number of an int, a bool or a tensor."""
    return torch.as_tensor(value).as_subclass(Number)


class Block:
    """Shared memory, or a part of it."""

    def __init__(self, data: torch.Tensor) -> None:
        self.data, self.shape, self.dtype = data, list(data.shape), data.dtype

    def index(self, at: Any) -> Block:
        """Take one part of the first axis; none lies before the first."""
        assert 0 <= int(at) < self.shape[0], f"{int(at)} is outside {self.shape}"
        return Block(self.data[int(at)])

    def slice(self, start: int, length: int, dim: int = 0) -> Block:
        """Take some of an axis."""
        return Block(self.data.narrow(dim, start, length))

    def reshape(self, shape: Sequence[int]) -> Block:
        """Count the same memory in another shape."""
        return Block(self.data.view(*shape))

    def permute(self, order: Sequence[int]) -> Block:
        """Turn axes."""
        return Block(self.data.permute(*order))

    def load(self, _layout: Any) -> Any:
        """Copy to registers."""
        return self.data.clone().as_subclass(Number)

    def store(self, value: torch.Tensor) -> None:
        """Copy from registers."""
        self.data.copy_(value)


class Barrier:
    """An mbarrier: arrivals and bytes that are due; the number of phases behind it."""

    def __init__(self) -> None:
        self.count = self.due = self.bytes = self.phases = 0

    def change(self, arrivals: int, more: int) -> None:
        """Count down, and begin a new phase where nothing is due."""
        self.due, self.bytes = self.due - arrivals, self.bytes + more
        assert self.due >= 0, "more arrive than are due"
        if self.due == 0 and self.bytes == 0:
            self.phases, self.due = self.phases + 1, self.count


class Barriers(Barrier):
    """An array of mbarriers; itself the first, where it is not indexed."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.all = [self, *(Barrier() for _ in range(length - 1))]

    def index(self, at: Any) -> Barrier:
        """Take one; none lies before the first."""
        assert 0 <= int(at) < len(self.all)
        return self.all[int(at)]


class Pointer:
    """A place in a flat tensor, or a place for each of a tensor of offsets."""

    def __init__(self, data: torch.Tensor, at: Any = 0) -> None:
        self.data, self.at = data, at

    def __add__(self, more: Any) -> Pointer:
        return Pointer(self.data, self.at + more)


class Descriptor:
    """A TMA descriptor: what is outside the tensor is read as 0 and not written."""

    layout = None

    def __init__(self, data: torch.Tensor, block: Sequence[int]) -> None:
        self.data, self.dtype = data, data.dtype
        size = torch.Size(block).numel() * data.element_size()
        self.block_type = types.SimpleNamespace(nbytes=size, shape=list(block))

    def part(self, at: Sequence[Any], rows: int) -> torch.Tensor:
        """Return the rows that are inside, of the last two axes, and their columns."""
        *outer, first, column = (int(i) for i in at)
        columns = slice(column, column + self.block_type.shape[-1])
        return self.data[tuple(outer)][first : first + rows, columns]


def _store(to: Pointer, value: torch.Tensor, mask: torch.Tensor) -> None:
    to.data[torch.as_tensor(to.at)[mask]] = torch.Tensor(value)[mask]


class Product:
    """A wgmma that was asked for."""

    def __init__(self, a: Any, b: Block, acc: Any, use_acc: bool) -> None:
        self.a, self.b, self.acc, self.use_acc = a, b, acc, use_acc
        self.value: Any = None

    def finish(self) -> None:
        """Read the operands and multiply."""
        if self.value is None:
            a = self.a.data if isinstance(self.a, Block) else self.a
            acc = self.acc.value if isinstance(self.acc, Product) else self.acc
            product = torch.as_tensor(a) @ self.b.data
            self.value = (acc + product if self.use_acc else product).as_subclass(
                Number
            )


class Machine:
    """Some programs that run at a time, and what their code imports."""

    def __init__(self, module: types.ModuleType, late: bool, seed: int) -> None:
        self.late, self.random = late, random.Random(seed)
        self.changed = threading.Condition()
        self.mine = threading.local()
        names: dict[str, Any] = dict(vars(module))
        for name, found in vars(module).items():
            if isinstance(found, JITFunction):
                names[name] = types.FunctionType(found.fn.__code__, names, name)
            elif type(found).__name__ == "constexpr":
                names[name] = found.value
        names |= {
            "gl": self._language(), "mbarrier": self._barriers(), "tma": self._tma(),
            "warpgroup_mma": self._multiply, "warpgroup_mma_wait": self._wait_products,
            "fence_async_shared": lambda: None, "add_by_tma": self._add_by_tma,
        }  # fmt: skip
        self.names = names

    def launch(self, kernel: str, grid: int, resident: int, *args: Any, **known: Any):
        """Run a kernel's programs, started in any order, so many at a time."""
        order = list(range(grid))
        self.random.shuffle(order)
        passed = [number(a) if isinstance(a, int) else a for a in args]

        def program(pid: int) -> None:
            self.mine.pid = pid
            self.names[kernel](*passed, **known)

        with ThreadPoolExecutor(resident) as pool:
            for done in [pool.submit(program, pid) for pid in order]:
                done.result()

    def _until(self, true: Callable[[], bool], what: str) -> None:
        with self.changed:
            assert self.changed.wait_for(true, PATIENCE), f"deadlock: {what}"

    # --- what a kernel calls ------------------------------------------------------

    def _language(self) -> types.SimpleNamespace:
        def pick(which: Any, yes: Any, no: Any) -> Any:
            return number(torch.where(torch.as_tensor(which), yes, no))

        def two(name: str) -> Callable[[Any, Any], Any]:
            function = getattr(torch, name)
            return lambda a, b: number(function(torch.as_tensor(a), torch.as_tensor(b)))

        return types.SimpleNamespace(
            float32=torch.float32, int32=torch.int32, int64=torch.int64,
            arange=lambda a, b, layout=None: number(torch.arange(a, b)),
            zeros=lambda shape, dtype, layout: number(torch.zeros(shape, dtype=dtype)),
            full=lambda shape, value, dtype, layout: number(
                torch.full(tuple(shape), value, dtype=dtype)
            ),
            max=lambda x, axis: x.amax(axis), sum=lambda x, axis: x.sum(axis),
            where=pick, exp2=torch.exp2, log2=torch.log2,
            minimum=two("minimum"), maximum=two("maximum"), store=_store,
            cdiv=lambda a, b: number((a + b - 1) // b), static_range=range,
            convert_layout=lambda value, layout: value,
            SliceLayout=lambda *a: None, DotOperandLayout=lambda *a: None,
            NVMMADistributedLayout=lambda *a: None, NVMMASharedLayout=lambda *a: None,
            program_id=lambda axis: number(self.mine.pid),
            allocate_shared_memory=self._allocate, atomic_add=self._atomic_add,
            inline_asm_elementwise=self._assembly, warp_specialize=self._specialize,
        )  # fmt: skip

    def _barriers(self) -> types.SimpleNamespace:
        def init(bar: Barrier, count: int) -> None:
            bar.count = bar.due = count

        def change(bar: Barrier, arrivals: int, more: int, pred: Any) -> None:
            if bool(pred):
                with self.changed:
                    bar.change(arrivals, more)
                    self.changed.notify_all()

        def wait(bar: Barrier, phase: Any, pred: Any = True) -> None:
            if bool(pred):
                self._until(lambda: bar.phases % 2 != int(phase), "an mbarrier")

        return types.SimpleNamespace(
            MBarrierLayout=lambda: None, init=init, wait=wait,
            arrive=lambda bar, count, pred=True: change(bar, count, 0, pred),
            expect=lambda bar, size, pred=True: change(bar, 1, size, pred),
        )  # fmt: skip

    def _tma(self) -> types.SimpleNamespace:
        def load(desc: Descriptor, at: Any, bar: Barrier, block: Block) -> None:
            rows = block.data.view(-1, block.shape[-1])
            found = desc.part(at, len(rows))
            rows.zero_()
            rows[: len(found)] = found
            with self.changed:
                bar.change(0, -desc.block_type.nbytes)
                self.changed.notify_all()

        def store(desc: Descriptor, at: Any, block: Block) -> None:
            rows = block.data.view(-1, block.shape[-1])
            place = desc.part(at, len(rows))
            place.copy_(rows[: len(place)])

        return types.SimpleNamespace(
            async_copy_global_to_shared=load, async_copy_shared_to_global=store,
            store_wait=lambda pending: None,
        )  # fmt: skip

    def _add_by_tma(self, desc: Descriptor, at: Any, block: Block) -> None:
        with self.changed:
            place = desc.part(at, block.shape[0])
            place += block.data[: len(place)]

    def _allocate(self, dtype: torch.dtype, shape: Sequence[int], _layout: Any) -> Any:
        if dtype == torch.int64:
            return Barriers(shape[0] if len(shape) > 1 else 1)
        return Block(torch.full(tuple(shape), torch.nan, dtype=dtype))

    def _specialize(self, roles: Any, warps: Any, registers: Any) -> None:
        pid, errors = self.mine.pid, []

        def run(role: Callable[..., None], args: Any) -> None:
            self.mine.pid, self.mine.asked = pid, []
            try:
                role(*args)
                assert all(p.value is not None for p in self.mine.asked), "not waited"
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=run, args=role) for role in roles]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]

    def _multiply(
        self, a: Any, b: Block, acc: Any, *, use_acc: bool = True,
        is_async: bool = False,
    ) -> Any:  # fmt: skip
        product = Product(a, b, acc, use_acc)
        self.mine.asked.append(product)
        if not self.late:
            product.finish()
        return product if is_async else self._wait_products(0, [product])

    def _wait_products(self, pending: int, deps: Sequence[Any]) -> Any:
        asked = self.mine.asked
        while len(asked) > pending:
            asked.pop(0).finish()
        for dep in deps:
            assert dep not in asked if isinstance(dep, Product) else True, "too soon"
        found = [d.value if isinstance(d, Product) else d for d in deps]
        return found[0] if len(found) == 1 else found

    def _atomic_add(self, at: Pointer, more: int, sem: str, scope: str) -> Any:
        with self.changed:
            before = int(at.data[int(at.at)])
            at.data[int(at.at)] += more
            self.changed.notify_all()
        return number(before)

    def _assembly(self, text: str, constraints: str, args: Any, **_: Any) -> None:
        if "ld.acquire" in text:
            at, wanted = args
            self._until(lambda: int(at.data[int(at.at)]) == int(wanted), "a turn")
            return
        if "cp.async.bulk.wait_group" in text:
            return
        assert "red.relaxed.gpu.global.add.v4.f32 [$8]" in text
        # The first pointer of each four; a thread's four are two columns of two rows.
        values, at = args[0].view(torch.float32), args[1].at
        r, n = torch.arange(ROWS)[:, None], torch.arange(values.shape[1])[None, :]
        place = torch.as_tensor(at) + n % 2 + 2 * (r // 8 % 2)
        with self.changed:
            args[1].data.index_add_(0, place.flatten(), torch.Tensor(values).flatten())
