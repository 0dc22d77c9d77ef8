"""Chapter 17: circuits of another build that are right, and some that are not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from edited import graded

pytest.importorskip("amaranth")

from autograder.exercises import all_exercises
from autograder.judge.judge import Judge

MAC = all_exercises()["streaming_mac"]
UNIT = all_exercises()["max_rescale_unit"]


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge(seed=5, device="cpu") as made:
        yield made


def test_a_register_more_is_right(judge):
    # The sum leaves through a register of its own.
    assert (
        graded(
            judge,
            MAC,
            (
                "there, last, ended = Signal(), Signal(), Signal(init=1)",
                "there, last, ended, more, total = Signal(), Signal(), Signal(init=1), "
                "Signal(), Signal.like(self.out.payload)",
            ),
            ("out.valid.eq(there)", "more.eq(there), out.valid.eq(more), "
             "out.payload.eq(total)"),
            ("before = Mux(ended, 0, out.payload)", "before = Mux(ended, 0, total)"),
            ("out.payload.eq(before + product)", "total.eq(before + product)"),
        )
        == ""
    )  # fmt: skip


def test_the_table_may_be_read_and_shifted_in_one_stage(judge):
    assert (
        graded(
            judge,
            UNIT,
            ("latency = 5", "latency = 4"),
            (
                "there, last = Signal(4), Signal(4)",
                "there, last = Signal(3), Signal(3)",
            ),
            ("entry.eq(read.data), places.eq(whole),", ""),
            ("entry >> places", "read.data >> whole"),
            ("                shift[1].eq(shift[0]),\n", ""),
            ("shift.eq(shift[1])", "shift.eq(shift[0])"),
        )
        == ""
    )


def test_a_product_more_than_needed_is_told(judge):
    told = graded(
        judge,
        MAC,
        ("last.eq(pair.payload.last),", "last.eq(pair.payload.last), "
         "Signal(16).eq(pair.payload.a * 3),"),
    )  # fmt: skip
    assert "It takes 2 multipliers" in told


def test_a_payload_of_other_fields_is_told(judge):
    told = graded(judge, MAC, ('"b": signed(width), "last": 1', '"b": signed(width)'))
    assert "wanted fields for 3 numbers" in told or "last" in told
