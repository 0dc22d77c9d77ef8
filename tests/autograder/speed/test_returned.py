"""What a learner's process tells of its outputs is checked before it is read."""

from __future__ import annotations

import pytest
import torch

from autograder.exercise import Output, Problem
from autograder.judge.speed.returned import Segments, WrongOutputs, find_outputs

PROBLEM = Problem({}, {"out": Output((4, 2), torch.float32)})
HANDLES = [bytes([i]) * 64 for i in range(3)]


def segments():
    return Segments(
        open_handle=lambda handle: 1_000_000 * (1 + handle[0]),
        extent=lambda address: (address, 4096),
    )


def told(**changes):
    return {
        "segments": [HANDLES[0].hex(), HANDLES[1].hex()],
        "form": [{"dtype": "float32", "shape": [4, 2], "strides": [2, 1]}],
        "rows": [[[0, 0]], [[1, 512]]],
        **changes,
    }


def test_addresses_are_segments_and_offsets():
    (made,) = find_outputs(told(), PROBLEM, 2, segments())
    assert made.addresses == (1_000_000, 2_000_512)
    assert made.dtype == torch.float32 and made.shape == (4, 2)


def test_a_segment_is_told_once_and_stays_mapped():
    known = segments()
    find_outputs(told(), PROBLEM, 2, known)
    later = told(segments=[HANDLES[2].hex()], rows=[[[2, 0]], [[0, 32]]])
    (made,) = find_outputs(later, PROBLEM, 2, known)
    assert made.addresses == (3_000_000, 1_000_032)
    assert len(known.mapped) == 3


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"form": [{"dtype": "float16", "shape": [4, 2], "strides": [2, 1]}]},
            "float16",
        ),
        ({"form": [{"dtype": "float32", "shape": [8], "strides": [1]}]}, r"\[8\]"),
        ({"form": []}, "returned 0 values"),
        ({"rows": [[[0, 4080]], [[1, 0]]]}, "did not say"),  # over the end
        ({"rows": [[[0, 2]], [[1, 0]]]}, "did not say"),  # not aligned
        ({"rows": [[[7, 0]], [[1, 0]]]}, "did not say"),  # no such segment
        ({"rows": [[[-1, 0]], [[1, 0]]]}, "did not say"),
        ({"rows": [[[0, 0]]]}, "did not say"),  # a call too few
        ({"rows": [[[0, 0.5]], [[1, 0]]]}, "did not say"),
        ({"rows": "x"}, "did not say"),
        ({"segments": ["zz"]}, "did not say"),
        ({"segments": None}, "did not say"),
        (
            {"form": [{"dtype": "float32", "shape": [4, 2], "strides": [10**9, 1]}]},
            "did not say",
        ),
        ({"form": [{"dtype": "float32", "shape": [4, 2], "strides": [1]}]}, "did not"),
    ],
)
def test_lies_and_mistakes_are_refused(changes, words):
    with pytest.raises(WrongOutputs, match=words):
        find_outputs(told(**changes), PROBLEM, 2, segments())


def test_new_memory_at_every_call_comes_to_an_end():
    with pytest.raises(WrongOutputs, match="new memory"):
        find_outputs(told(segments=[HANDLES[0].hex()] * 2000), PROBLEM, 2, segments())
