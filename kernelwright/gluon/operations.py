"""What each operation of Gluon does here: one table of functions by their names.

A function takes the machine, and then what the kernel passes. Under ``gl`` stands what
kernels import by that name, ``triton.experimental.gluon.language``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from kernelwright.errors import KernelFault
from kernelwright.gluon.barriers import Barrier, Barriers
from kernelwright.gluon.memory import Block, Descriptor, Pointer
from kernelwright.gluon.number import number
from kernelwright.gluon.products import Product

if TYPE_CHECKING:
    from kernelwright.gluon.machine import Machine

Operation = Callable[..., Any]


def _nothing(*_: Any, **__: Any) -> None:
    """Do what only the compiler sees to: layouts, fences, waits for a store."""


# --- values and global memory -----------------------------------------------------


def _of_two(function: Operation, _: Machine, a: Any, b: Any) -> Any:
    return number(function(torch.as_tensor(a), torch.as_tensor(b)))


def _full(
    _: Machine, shape: Sequence[int], value: Any, dtype: torch.dtype, layout: Any = None
) -> Any:
    return number(torch.full(tuple(shape), value, dtype=dtype))


def _zeros(m: Machine, shape: Sequence[int], dtype: torch.dtype, layout: Any) -> Any:
    return _full(m, shape, 0, dtype)


def _store(_: Machine, to: Pointer, value: torch.Tensor, mask: Any = True) -> None:
    to.data[torch.as_tensor(to.at)[mask]] = torch.as_tensor(value)[mask].to(
        to.data.dtype
    )


def _atomic_add(machine: Machine, at: Pointer, more: int, **_: Any) -> Any:
    with machine.threads.change():
        before = int(at.data[int(at.at)])
        at.data[int(at.at)] += more
    return number(before)


# --- shared memory, mbarriers and TMA ---------------------------------------------


def _allocate(
    _: Machine, dtype: torch.dtype, shape: Sequence[int], layout: Any
) -> Block | Barriers:
    if layout is Barriers:
        return Barriers(shape[0])
    return Block(torch.full(tuple(shape), torch.nan, dtype=dtype))


def _expect(machine: Machine, bar: Barrier, size: int, pred: Any = True) -> None:
    if bool(pred):
        with machine.threads.change():
            bar.change(1, size)


def _arrive(machine: Machine, bar: Barrier, count: int = 1, pred: Any = True) -> None:
    if bool(pred):
        with machine.threads.change():
            bar.change(count, 0)


def _wait(machine: Machine, bar: Barrier, phase: Any, pred: Any = True) -> None:
    if bool(pred):
        machine.threads.until(lambda: bar.phases % 2 != int(phase), bar)


def _load_by_tma(
    machine: Machine, desc: Descriptor, at: Sequence[Any], bar: Barrier, block: Block
) -> None:
    inside, place = desc.inside(at, block)
    block.data.zero_()
    place.copy_(inside)
    with machine.threads.change():
        bar.change(0, -desc.block_type.nbytes)


def _store_by_tma(
    _: Machine, desc: Descriptor, at: Sequence[Any], block: Block
) -> None:
    place, inside = desc.inside(at, block)
    place.copy_(inside)


# --- wgmma ------------------------------------------------------------------------


def _multiply(
    machine: Machine, a: Any, b: Block, acc: Any, *, use_acc: Any = True,
    is_async: bool = False,
) -> Any:  # fmt: skip
    product = Product(a, b, acc, bool(use_acc))
    machine.mine.asked.append(product)
    if not machine.late:
        product.finish()
    return product if is_async else _wait_products(machine, 0, [product])


def _wait_products(machine: Machine, pending: int = 0, deps: Sequence[Any] = ()) -> Any:
    asked = machine.mine.asked
    while len(asked) > pending:
        asked.pop(0).finish()
    if any(dep is product for dep in deps for product in asked):
        raise KernelFault(
            f"a wgmma's result is taken too soon: {pending} are still at work, and it "
            "is one of them; wanted a smaller number to wait for",
            kind="barrier",
        )
    found = [d.value if isinstance(d, Product) else d for d in deps]
    return found[0] if len(found) == 1 else found


# --- the table --------------------------------------------------------------------

OPERATIONS: dict[str, Operation] = {
    "gl.arange": lambda _, start, stop, layout=None: number(torch.arange(start, stop)),
    "gl.zeros": _zeros,
    "gl.full": _full,
    "gl.max": lambda _, x, axis: x.amax(axis),
    "gl.sum": lambda _, x, axis: x.sum(axis),
    "gl.where": lambda _, which, yes, no: number(
        torch.where(torch.as_tensor(which), yes, no)
    ),
    "gl.exp2": lambda _, x: torch.exp2(x),
    "gl.log2": lambda _, x: torch.log2(x),
    "gl.minimum": partial(_of_two, torch.minimum),
    "gl.maximum": partial(_of_two, torch.maximum),
    "gl.cdiv": lambda _, a, b: number((a + b - 1) // b),
    "gl.static_range": lambda _, *bounds: range(*bounds),
    "gl.convert_layout": lambda _, value, layout: value,
    "gl.SliceLayout": _nothing,
    "gl.DotOperandLayout": _nothing,
    "gl.NVMMADistributedLayout": _nothing,
    "gl.NVMMASharedLayout": _nothing,
    "gl.program_id": lambda machine, axis: number(machine.mine.pid),
    "gl.store": _store,
    "gl.atomic_add": _atomic_add,
    "gl.allocate_shared_memory": _allocate,
    "gl.warp_specialize": lambda machine, roles, warps, registers: machine.run(roles),
    "mbarrier.MBarrierLayout": lambda _: Barriers,
    "mbarrier.init": lambda _, bar, count: bar.begin(count),
    "mbarrier.expect": _expect,
    "mbarrier.arrive": _arrive,
    "mbarrier.wait": _wait,
    "tma.async_copy_global_to_shared": _load_by_tma,
    "tma.async_copy_shared_to_global": _store_by_tma,
    "tma.store_wait": _nothing,
    "warpgroup_mma": _multiply,
    "warpgroup_mma_wait": _wait_products,
    "fence_async_shared": _nothing,
}
