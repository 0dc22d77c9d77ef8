"""Which programs of a launch touch the same elements."""

from __future__ import annotations

import numpy as np

from kernelwright.trace.memory import Buffer
from kernelwright.trace.report import Sharing
from kernelwright.trace.triton.sharing import Touches

OUT = Buffer(position=1, name="out", low=4096, high=4096 + 32 * 4, element=4,
             unwritten=True)  # fmt: skip


def stored(*accesses: tuple[int, np.ndarray]) -> Sharing:
    """Return what programs share that store to elements, one access after another."""
    touches = Touches(OUT, "store")
    for program, elements in accesses:
        touches.add(4 * elements, (program, 0, 0), 10 + program)
    return touches.sharing()


def test_programs_with_elements_of_their_own_share_nothing() -> None:
    found = stored((0, np.arange(16)), (1, np.arange(16, 32)))
    assert (found.elements, found.blocks, found.index_blocks) == (32, 0, 0)
    # A program may store its own again.
    found = stored((0, np.arange(32)), (0, np.arange(32)))
    assert (found.blocks, found.index_blocks) == (1, 0)


def test_programs_that_overlap_are_named_with_the_first_element() -> None:
    found = stored((0, np.arange(18)), (1, np.arange(16, 32)), (2, np.arange(17, 19)))
    assert (found.index, found.line, found.index_blocks) == (16, 11, 2)
    assert found.blocks == 0


def test_programs_that_do_it_all_are_counted() -> None:
    found = stored(*((program, np.arange(32)) for program in range(5)))
    assert (found.blocks, found.index, found.index_blocks) == (5, 0, 5)


def test_lanes_of_one_program_that_store_the_same_are_counted() -> None:
    found = stored((0, np.zeros(16, np.int64)), (1, np.arange(8, 16)))
    assert (found.index, found.index_threads, found.index_blocks) == (0, 16, 1)
