"""Copies overflow the caches, share what the originals share, and fit in memory."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch

from kernelwright.measure.fresh import (
    CACHES,
    MOST_COPIES,
    copies_needed,
    footprint_of,
    rotate,
)

MIB = 1024**2


class Pair(NamedTuple):
    left: torch.Tensor
    right: torch.Tensor


@pytest.mark.parametrize("footprint", [1000, 70_000, MIB, 3 * MIB, 300 * MIB])
def test_copies_pass_four_caches_where_nothing_stops_them(footprint):
    copies = copies_needed(footprint, 10 * MIB, room=2**40)
    assert copies >= 2
    assert copies * footprint > CACHES * 10 * MIB or copies == MOST_COPIES


def test_memory_limits_the_copies_before_the_caches_do():
    assert copies_needed(MIB, 10 * MIB, room=5 * MIB) == 6
    assert copies_needed(MIB, 10 * MIB, room=0) == 1
    assert copies_needed(0, 10 * MIB, room=0) == 1


def test_rotation_copies_values_into_memory_of_its_own():
    x, n = torch.arange(1000.0), 5
    turns = rotate((x, n), cache_bytes=2500, room=MIB).turns
    assert turns[0][0] is x
    assert len(turns) == 3
    places = {turn[0].data_ptr() for turn in turns}
    assert len(places) == 3
    assert all(torch.equal(turn[0], x) and turn[1] == 5 for turn in turns)


def test_rotation_says_whether_it_is_cold():
    x = torch.zeros(1000)
    assert rotate((x,), cache_bytes=1000, room=MIB).cold
    assert not rotate((x,), cache_bytes=MIB, room=8000).cold
    assert not rotate((3,), cache_bytes=MIB, room=8000).cold


def test_what_shares_memory_still_shares_it_in_a_copy():
    whole = torch.zeros(64)
    turn = rotate((whole, whole[8:16]), cache_bytes=10, room=MIB).turns[1]
    turn[1].fill_(7)
    assert turn[0].sum() == 8 * 7
    assert whole.sum() == 0
    assert footprint_of((whole, whole[8:16])) == 256


def test_strides_dtype_and_gradient_survive():
    x = torch.randn(6, 4, dtype=torch.float64).t().requires_grad_()
    copy = rotate((x,), cache_bytes=1, room=MIB).turns[1][0]
    assert copy.stride() == x.stride()
    assert copy.dtype == torch.float64
    assert copy.requires_grad
    assert torch.equal(copy, x)


def test_a_view_is_no_larger_input_than_what_it_reaches():
    huge = torch.zeros(MIB)
    view = huge[1000:1010]
    # Rounded down to 256 bytes, so that a copy keeps the alignment of the original.
    assert footprint_of((view,)) == 40 + 4000 % 256
    copy = rotate((view,), cache_bytes=1, room=MIB).turns[1][0]
    assert copy.untyped_storage().nbytes() < 1000
    assert copy.data_ptr() % 32 == view.data_ptr() % 32


def test_tensors_inside_containers_are_copied_too():
    x = torch.ones(8)
    given = ([x, 1], {"k": x}, Pair(x, torch.zeros(3)), "text")
    turn = rotate(given, cache_bytes=1, room=MIB).turns[1]
    assert turn[0][0] is not x and torch.equal(turn[0][0], x)
    assert turn[1]["k"].data_ptr() == turn[0][0].data_ptr()
    assert isinstance(turn[2], Pair)
    assert turn[3] == "text"


def test_empty_tensors_are_passed_through():
    empty = torch.empty(0)
    turns = rotate((empty, torch.ones(8)), cache_bytes=1, room=MIB).turns
    assert turns[1][0] is empty
