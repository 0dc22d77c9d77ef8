"""Chunks going round: every recorded message is drawn and said."""

from __future__ import annotations

import pytest

from kernelwright.draw import explore_ring, message_steps
from kernelwright.errors import ArgumentError
from kernelwright.ranks import Message


def _sent(ranks: int, steps: int) -> list[list[Message]]:
    return [
        [
            Message(r, (r + 1) % ranks, True, 8, 7, 8 * ((r - s) % ranks), s, 3, s)
            for s in range(steps)
        ]
        for r in range(ranks)
    ]


@pytest.mark.parametrize(("ranks", "steps"), [(2, 2), (4, 6), (5, 8)])
def test_each_message_is_an_arrow(ranks: int, steps: int) -> None:
    frames = message_steps(_sent(ranks, steps)).frames
    assert len(frames) == 1 + steps
    assert f"{ranks * steps} messages of {ranks} ranks" in frames[0].words
    for step, frame in enumerate(frames[1:]):
        assert frame.svg.count("<polygon") == ranks
        assert f"0 to 1: place {-step % ranks}" in frame.words
        assert f"the most that a rank has sent is {8 * (step + 1)} bytes" in frame.words


def test_the_ring_adds_in_its_first_half() -> None:
    explorer = explore_ring((3,))
    words = [explorer.picture(3, step).words for step in range(4)]
    assert ["added" in said for said in words] == [True, True, False, False]
    assert "Each has sent 1.33 N" in words[-1]
    assert "<svg" in explorer.figure()._repr_html_()


def test_ranks_that_send_nothing_make_a_picture() -> None:
    assert "0 messages of 1 ranks" in str(message_steps([[]]))


@pytest.mark.parametrize("sent", [[], _sent(9, 1), _sent(2, 33)])
def test_what_makes_no_picture_is_refused(sent: list[list[Message]]) -> None:
    with pytest.raises(ArgumentError, match="wanted 1 to 8"):
        message_steps(sent)
