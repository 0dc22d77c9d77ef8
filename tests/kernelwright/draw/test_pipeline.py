"""The picture of a pipeline: what is held, what stands still, what is lost."""

from __future__ import annotations

import pytest

from kernelwright.draw import explore_pipeline
from kernelwright.draw.pipeline import _run
from kernelwright.errors import ArgumentError


def test_an_item_moves_a_stage_a_cycle() -> None:
    ran = _run(2, (1,), (1,), 5)
    assert [cycle.held for cycle in ran] == [
        (None, None), (0, None), (1, 0), (2, 1), (3, 2)
    ]  # fmt: skip
    assert [cycle.taken for cycle in ran] == [False, False, True, True, True]


@pytest.mark.parametrize("gives", [(1,), (1, 0), (0, 0, 1)])
@pytest.mark.parametrize("takes", [(1,), (0, 1), (1, 0, 0, 0)])
def test_none_is_lost_or_doubled(gives: tuple[int], takes: tuple[int]) -> None:
    ran = _run(3, gives, takes, 40)
    taken = [cycle.held[-1] for cycle in ran if cycle.taken]
    assert len(taken) > 4 and taken == list(range(len(taken)))


def test_it_stands_still_where_nobody_takes() -> None:
    words = str(explore_pipeline(("one",), takes={"never": (0,)}, cycles=6).figure())
    assert "0 items are taken in 6 cycles; the pipeline stands still in 5" in words


def test_more_than_can_be_read_is_refused() -> None:
    with pytest.raises(ArgumentError, match="4 stages and 99 cycles; wanted up to 8"):
        explore_pipeline(cycles=99)
