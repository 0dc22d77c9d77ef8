"""From the runtime's outcome to a Python exception that says what to mend."""

from __future__ import annotations

import signal
from collections.abc import Callable

from kernelwright.emulator.launch import Outcome, Waiter
from kernelwright.emulator.operations import OPERATIONS
from kernelwright.errors import KernelDeadlock, KernelFault, KernelTimeout

FINE, SIGNAL, ASSERT, TRAP, BARRIER, SYNC_MASK, DEADLOCK, TIMEOUT = range(8)
ABANDONED, MISUSE = 8, 9

Triple = tuple[int, int, int]

# Of what has no mask.
TOGETHER = (
    "all 32 lanes of a warp make WMMA's calls, mma.sync and ldmatrix together. Take it "
    "out of the if, or the loop, that some lanes do not enter"
)


def fault_of(
    outcome: Outcome, kernel: str, line_of: Callable[[int], int], deadline_s: float
) -> KernelFault | None:
    """Return the exception of an outcome, or None for a launch that went well."""
    kind = outcome.kind
    if kind == FINE:
        return None
    block: Triple = (outcome.block[0], outcome.block[1], outcome.block[2])
    thread: Triple = (outcome.thread[0], outcome.thread[1], outcome.thread[2])
    of_rank = f" of rank {outcome.rank - 1}" if outcome.rank else ""
    where = f"thread {_index(thread)} of block {_index(block)}{of_rank}"
    if kind == SIGNAL:
        line = line_of(outcome.pc)
        what, name = _signal_words(outcome)
        message = f"{kernel}{_at(line)}: {where} {what}"
        return KernelFault(message, kind=name, line=line, block=block, thread=thread)
    line = outcome.line
    text = outcome.text.decode(errors="replace")
    if kind == ASSERT:
        message = f"{kernel}{_at(line)}: assertion `{text}` failed in {where}"
        return KernelFault(
            message, kind="assert", line=line, block=block, thread=thread
        )
    if kind == TRAP:
        message = f"{kernel}{_at(line)}: {where} " + (
            f"could not run: {text}" if text else "called __trap()"
        )
        return KernelFault(message, kind="trap", line=line, block=block, thread=thread)
    if kind == MISUSE:
        message = f"{kernel}{_at(line)}: {where} {text}"
        return KernelFault(
            message, kind="misuse", line=line, block=block, thread=thread
        )
    if kind == BARRIER:
        message = (
            f"{kernel}: the threads of block {_index(block)} meet at different "
            f"barriers: {where} is at __syncthreads on line {line}, others wait at the "
            f"one on line {outcome.other_line}. Every thread of a block must reach the "
            "same __syncthreads: move it out of the branch"
        )
        return KernelFault(
            message, kind="barrier", line=line, block=block, thread=thread
        )
    if kind == SYNC_MASK:
        message = f"{kernel}{_at(line)}: {where} {_mask_words(outcome, text, thread)}"
        return KernelFault(
            message, kind="sync mask", line=line, block=block, thread=thread
        )
    waiters = list(outcome.waiters[: outcome.waiter_count])
    if kind == DEADLOCK:
        first = waiters[0].line if waiters else 0
        message = (
            f"{kernel}: deadlock in block {_index(block)}: no thread can go on. "
            f"{_waiting(waiters)}. Each waits for threads that wait elsewhere"
        )
        return KernelDeadlock(
            message, kind="deadlock", line=first, block=block, thread=thread
        )
    line = line_of(outcome.pc) or (waiters[0].line if waiters else 0)
    message = f"{kernel} was stopped after {deadline_s:g} s"
    if line:
        message += f": it was at line {line} in {where}"
    if waiters:
        message += f". {_waiting(waiters)}"
    loop = "a loop does not end"
    if outcome.rank:
        loop += ", as one does that waits for what no rank tells"
    message += f". Either {loop}, or this is too much for the emulator"
    if outcome.unbegun and not outcome.rank:
        # So it is on a GPU that cannot hold all blocks at once.
        several = "blocks" if outcome.unbegun > 1 else "block"
        message += (
            f". {outcome.unbegun:,} {several} had not begun: some begin only when "
            "others have ended, so that no block may wait for another"
        )
    return KernelTimeout(message, kind="timeout", line=line, block=block, thread=thread)


def _signal_words(outcome: Outcome) -> tuple[str, str]:
    address = outcome.address
    if outcome.signal == signal.SIGFPE:
        return (
            "divided an integer by zero (a GPU goes on with a meaningless result)",
            "division by zero",
        )
    if outcome.signal == signal.SIGILL:
        return (
            "came to the end of a function that must return a value, or to code that "
            "cannot be run",
            "illegal instruction",
        )
    if outcome.stack_overflow:
        return (
            "used up its stack of 128 KB: recursion without end, or local arrays "
            "that are too large",
            "stack overflow",
        )
    did = "wrote to" if outcome.wrote else "read"
    if outcome.code == 128:  # SI_KERNEL: the processor did not name the address
        return "used a wild or misaligned address", "memory"
    if address < 4096:
        verb = did.removesuffix(" to")
        return f"{verb} through a null pointer (address {address:#x})", "memory"
    return (
        f"{did} address {address:#x}, which belongs to no array: check the index "
        "against the array's size",
        "memory",
    )


def _mask_words(outcome: Outcome, text: str, thread: Triple) -> str:
    if text == "self":
        return (
            f"is not among the lanes of its own mask {outcome.mask:#010x}: a warp "
            "operation's mask must name every lane that calls it"
        )
    if text == "whole warp":
        return (
            "is in one call while other lanes of its warp are in another, on line "
            f"{outcome.other_line}: {TOGETHER}"
        )
    return (
        "is in one warp operation while other lanes of its mask "
        f"{outcome.mask:#010x} are in another, on line {outcome.other_line}: all lanes "
        "that a mask names must make the same call"
    )


def _waiting(waiters: list[Waiter]) -> str:
    parts = []
    for waiter in waiters:
        first: Triple = (waiter.thread[0], waiter.thread[1], waiter.thread[2])
        name = OPERATIONS[waiter.operation - 1].waiting
        mask = f" with mask {waiter.mask:#010x}" if waiter.mask else ""
        who = (
            f"thread {_index(first)} waits"
            if waiter.count == 1
            else f"{waiter.count} threads, the first {_index(first)}, wait"
        )
        parts.append(f"{who} in {name}{mask} on line {waiter.line}")
    return "; ".join(parts)


def _index(index: Triple) -> str:
    return f"({index[0]}, {index[1]}, {index[2]})"


def _at(line: int) -> str:
    return f", line {line}" if line else ""
