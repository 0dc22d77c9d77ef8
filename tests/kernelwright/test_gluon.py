"""The emulator of Gluon: what its barriers, copies and products do, and complain of."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytest
import torch

pytest.importorskip("triton.experimental.gluon")

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from kernelwright import KernelDeadlock, KernelFault
from kernelwright.gluon import Descriptor, Machine

STAGES = gl.constexpr(2)
both = pytest.mark.parametrize("late", [False, True], ids=["reads early", "reads late"])


def nap() -> None:
    """Take a while, where a test says so."""


def machine(late: bool = True, seed: int = 0, **operations: Any) -> Machine:
    """Return a machine for this file's kernels, with operations by their last names."""
    return Machine(sys.modules[__name__], late, seed, {"nap": lambda _: 0} | operations)


def run(kernel: Any, *args: Any, late: bool = True, **known: Any) -> None:
    """Run one program of a kernel."""
    machine(late).launch(kernel.__name__, 1, 1, *args, **known)


# --- a product over a ring of stages: three roles, ragged edges -------------------


@gluon.jit
def _producer(a_desc, b_desc, a_tiles, b_tiles, full, empty, m0, steps):
    for i in range(steps):
        stage = i % STAGES
        mbarrier.wait(empty.index(stage), ((i // STAGES) & 1) ^ 1)
        nap()
        bar = full.index(stage)
        mbarrier.expect(bar, a_desc.block_type.nbytes + b_desc.block_type.nbytes)
        at = i * 16
        tma.async_copy_global_to_shared(a_desc, [m0, at], bar, a_tiles.index(stage))
        tma.async_copy_global_to_shared(b_desc, [at, 0], bar, b_tiles.index(stage))


@gluon.jit
def _consumer(out_desc, a_tiles, b_tiles, out_tile, full, empty, m0, steps, C):
    acc = gl.zeros([64, 32], gl.float32, None)
    for i in range(steps):
        stage = i % STAGES
        mbarrier.wait(full.index(stage), (i // STAGES) & 1)
        a = a_tiles.index(stage).slice(C * 64, 64)
        acc = warpgroup_mma(a, b_tiles.index(stage), acc, is_async=True)
        acc = warpgroup_mma_wait(0, deps=[acc])
        mbarrier.arrive(empty.index(stage), count=1)
    out_tile.index(C).store(acc)
    tma.async_copy_shared_to_global(out_desc, [m0 + C * 64, 0], out_tile.index(C))


@gluon.jit
def product_kernel(a_desc, b_desc, out_desc, steps):
    m0 = gl.program_id(0) * 128
    a_tiles = gl.allocate_shared_memory(a_desc.dtype, [STAGES, 128, 16], None)
    b_tiles = gl.allocate_shared_memory(a_desc.dtype, [STAGES, 16, 32], None)
    out_tile = gl.allocate_shared_memory(gl.float32, [2, 64, 32], None)
    bar: gl.constexpr = mbarrier.MBarrierLayout()
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], bar)
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], bar)
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=2)
    given = (out_desc, a_tiles, b_tiles, out_tile, full, empty, m0, steps)
    gl.warp_specialize([
        (_consumer, (*given, 0)),
        (_consumer, (*given, 1)),
        (_producer, (a_desc, b_desc, a_tiles, b_tiles, full, empty, m0, steps)),
    ], [4, 1], [160, 24])  # fmt: skip


@both
@pytest.mark.parametrize("seconds", [0, 0.02], ids=["at once", "slow copies"])
def test_roles_multiply_over_a_ring(late: bool, seconds: float) -> None:
    a = torch.randint(9, 20, (200, 75)).bfloat16()
    b = torch.randint(9, 20, (75, 29)).bfloat16()
    out = torch.full((200, 29), torch.nan)
    # Who waits long for a copy is in no deadlock.
    slow = machine(late, nap=lambda _: time.sleep(seconds))
    slow.launch(
        "product_kernel", 2, 2, Descriptor(a, [128, 16]), Descriptor(b, [16, 32]),
        Descriptor(out, [64, 32]), 5,
    )  # fmt: skip
    # Sums above 256 have more bits than bfloat16.
    assert torch.equal(out, a.float() @ b.float())


# --- TMA --------------------------------------------------------------------------


@gluon.jit
def copy_kernel(x_desc, out_desc, row, column):
    tile = gl.allocate_shared_memory(gl.float32, [4, 4], None)
    bar = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, x_desc.block_type.nbytes)
    tma.async_copy_global_to_shared(x_desc, [row, column], bar, tile)
    mbarrier.wait(bar, 0)
    tma.async_copy_shared_to_global(out_desc, [column, row], tile)


@pytest.mark.parametrize("row", [-5, -4, -1, 0, 3, 6, 90])
@pytest.mark.parametrize("column", [-3, 1, 4])
def test_a_copy_past_an_edge_reads_zeros_and_writes_nothing(
    row: int, column: int
) -> None:
    x, wide = torch.rand(6, 5) + 1, torch.zeros(200, 200)
    wide[50:56, 50:55] = x
    tile = wide[50 + row : 54 + row, 50 + column : 54 + column]
    out, room = torch.full((5, 6), 7.0), torch.full((200, 200), 7.0)
    run(copy_kernel, Descriptor(x, [4, 4]), Descriptor(out, [4, 4]), row, column)
    room[50 + column : 54 + column, 50 + row : 54 + row] = tile
    assert torch.equal(out, room[50:55, 50:56])


def test_a_copy_of_another_shape_is_refused() -> None:
    x = torch.zeros(8, 8)
    with pytest.raises(KernelFault, match=r"\[8, 4\] got \[4, 4\]"):
        run(copy_kernel, Descriptor(x, [8, 4]), Descriptor(x, [4, 4]), 0, 0)


# --- mbarriers --------------------------------------------------------------------


@gluon.jit
def waiting_kernel(count, arrivals, size, phase):
    bars = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    bar = bars.index(1)
    mbarrier.init(bar, count=count)
    if size > 0:
        mbarrier.expect(bar, size)
    for _ in range(arrivals):
        mbarrier.arrive(bar, count=1)
    mbarrier.arrive(bar, count=1, pred=False)
    mbarrier.wait(bar, phase)
    mbarrier.wait(bar, phase ^ 1, pred=False)


def test_a_barrier_lets_pass_whose_phase_is_over() -> None:
    run(waiting_kernel, 3, 3, 0, 0)
    run(waiting_kernel, 3, 6, 0, 1)
    run(waiting_kernel, 3, 2, 0, 1)  # the phase before the first is over


@pytest.mark.parametrize(
    ("given", "due"),
    [
        ((1, 0, 0, 0), "1 of 1 arrivals and 0 bytes"),
        ((3, 2, 0, 0), "1 of 3 arrivals and 0 bytes"),
        ((3, 3, 0, 1), "3 of 3 arrivals and 0 bytes"),
        ((1, 0, 512, 0), "0 of 1 arrivals and 512 bytes"),
    ],
    ids=["no arrival", "one too few", "the next phase", "bytes that do not come"],
)
def test_a_wait_for_nothing_is_a_deadlock(given: tuple[int, ...], due: str) -> None:
    with pytest.raises(KernelDeadlock, match=f"an mbarrier with {due} due"):
        run(waiting_kernel, *given)


def test_more_arrivals_than_are_due_are_refused() -> None:
    with pytest.raises(KernelFault, match="more arrive at an mbarrier than are due"):
        run(waiting_kernel, 0, 1, 0, 0)


@gluon.jit
def _first(bars, stage):
    mbarrier.wait(bars.index(0), 0)


@gluon.jit
def _second(bars, stage):
    mbarrier.wait(bars.index(stage), 0)


@gluon.jit
def two_kernel(stage):
    bars = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    mbarrier.init(bars.index(0), count=1)
    mbarrier.init(bars.index(1), count=1)
    roles = [(_first, (bars, stage)), (_second, (bars, stage))]
    gl.warp_specialize(roles, [4], [24])


@pytest.mark.parametrize("stage", [-1, 2])
def test_who_waits_for_a_role_that_failed_does_not_hide_why(stage: int) -> None:
    with pytest.raises(KernelFault, match=rf"index\({stage}\) is outside of the 2"):
        run(two_kernel, stage)


def test_roles_that_wait_for_each_other_are_a_deadlock() -> None:
    with pytest.raises(KernelDeadlock):
        run(two_kernel, 1)


# --- wgmma ------------------------------------------------------------------------


@gluon.jit
def overwriting_kernel(out, pending):
    a = gl.allocate_shared_memory(gl.float32, [64, 16], None)
    b = gl.allocate_shared_memory(gl.float32, [16, 8], None)
    a.store(gl.full([64, 16], 1.0, gl.float32, None))
    b.store(gl.full([16, 8], 1.0, gl.float32, None))
    acc = gl.full([64, 8], 100.0, gl.float32, None)
    acc = warpgroup_mma(a, b, acc, is_async=True)
    b.store(gl.full([16, 8], 2.0, gl.float32, None))
    acc = warpgroup_mma(a, b, acc, is_async=True)
    b.store(gl.full([16, 8], 3.0, gl.float32, None))
    if pending < 2:
        acc = warpgroup_mma_wait(pending, deps=[acc])
        gl.store(out + gl.arange(0, 8), acc[0])


@pytest.mark.parametrize(("late", "sum_"), [(False, 148.0), (True, 196.0)])
def test_operands_are_read_when_asked_for_or_when_waited_for(
    late: bool, sum_: float
) -> None:
    out = torch.zeros(9)
    run(overwriting_kernel, out, 0, late=late)
    assert out.tolist() == [sum_] * 8 + [0.0]


@both
@pytest.mark.parametrize(("pending", "said"), [(1, "too soon"), (2, "not waited for")])
def test_a_product_that_is_not_waited_for_is_refused(
    pending: int, said: str, late: bool
) -> None:
    with pytest.raises(KernelFault, match=said):
        run(overwriting_kernel, torch.zeros(9), pending, late=late)


@gluon.jit
def unwritten_kernel(out):
    tile = gl.allocate_shared_memory(gl.float32, [2, 4], None)
    tile.index(1).store(gl.zeros([4], gl.float32, None))
    gl.store(
        out + gl.arange(0, 4), gl.sum(tile.load(None), 0), mask=gl.arange(0, 4) < 3
    )


def test_shared_memory_begins_as_nan() -> None:
    out = torch.zeros(4)
    run(unwritten_kernel, out)
    assert out.isnan().tolist() == [True] * 3 + [False]


# --- programs ---------------------------------------------------------------------


def until_equal(m: Machine, at: Any, wanted: Any) -> None:
    """Wait for a number in global memory."""
    m.threads.until(lambda: int(at.data[int(at.at)]) == int(wanted), "the others")


def wait_for(at: Any, wanted: Any) -> None:
    """Stand for an operation of a kernel's own."""


@gluon.jit
def meeting_kernel(count, order, programs):
    before = gl.atomic_add(count, 1, sem="relaxed", scope="gpu")
    gl.store(order + before, gl.program_id(0))
    wait_for(count, programs)


def started(seed: int, resident: int, **operations: Any) -> list[int]:
    """Return the order in which five programs started."""
    count, order = torch.zeros(1, dtype=torch.int64), torch.zeros(5, dtype=torch.int64)
    made = machine(seed=seed, **operations)
    made.launch("meeting_kernel", 5, resident, count, order, 5)
    return order.tolist()


def test_programs_meet_only_where_all_are_resident() -> None:
    assert sorted(started(0, 5, wait_for=until_equal)) == [0, 1, 2, 3, 4]
    with pytest.raises(KernelDeadlock, match="the others"):
        started(0, 4, wait_for=until_equal)


def test_a_seed_is_an_order_of_programs() -> None:
    orders = [started(seed, 1, wait_for=lambda *_: None) for seed in (0, 1, 2, 0)]
    assert orders[0] == orders[3]
    assert len(set(map(tuple, orders))) == 3
    assert all(sorted(order) == [0, 1, 2, 3, 4] for order in orders)


@gluon.jit
def loading_kernel(out, n):
    gl.store(out, n // 2)
    gl.store(out + 1, n % 2)
    gl.load(out)


def test_what_is_not_emulated_is_named_and_can_be_given() -> None:
    out, loaded = torch.zeros(2), []
    with pytest.raises(NotImplementedError, match=r"no gl\.load is emulated"):
        run(loading_kernel, out, -7)
    assert out.tolist() == [-3, -1]  # towards zero, as on a GPU
    given = {"gl.load": lambda _, pointer: loaded.append(pointer.at)}
    machine(**given).launch("loading_kernel", 1, 1, out, -7)
    assert loaded == [0]
