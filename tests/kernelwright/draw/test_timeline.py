"""A timeline of backward: what is said and drawn is what was recorded."""

from __future__ import annotations

import pytest
import torch

from kernelwright.draw import explore_timeline
from kernelwright.draw.timeline import Event, hidden_share
from kernelwright.errors import ArgumentError
from kernelwright.measure.messages import note_backward

RUN: list[Event] = [
    ("gradient", "b", 10.2, 10.2),
    ("gradient", "w", 10.8, 10.8),
    ("all-reduce", "bucket 0", 10.2, 10.7),
    ("all-reduce", "bucket 1", 10.6, 11.3),
    ("backward", "", 10.0, 11.0),
]


def test_the_share_counts_overlapping_messages_once() -> None:
    # 10.2 to 11.3, of which 0.8 s are within backward.
    assert hidden_share(RUN) == pytest.approx(0.8 / 1.1)
    assert hidden_share([("backward", "", 0.0, 1.0)]) == 0.0


def test_each_run_is_a_choice() -> None:
    # The other process's clock began elsewhere.
    shifted = [(what, name, a + 5, b + 5) for what, name, a, b in RUN]
    explorer = explore_timeline({"25 MB": [RUN, shifted], "1 MB": [RUN]})
    words = explorer.picture("25 MB").words
    assert words == (
        "2 messages a rank, 73% of their time behind backward; the last one ends "
        "300.0 ms after it."
    )
    svg = explorer.picture("25 MB").drawn.frames[0].svg
    assert svg.count("<title>bucket 1: 700.00 ms") == 2
    assert "rank 1" in svg and "rank 1" not in (
        explorer.picture("1 MB").drawn.frames[0].svg
    )
    assert "25 MB" in str(explorer) and "1 MB" in explorer.figure()._repr_html_()


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(ArgumentError, match="rank 0: wanted one event"):
        explore_timeline({"none": [RUN[:-1]]})
    with pytest.raises(ArgumentError, match="has 9 ranks; wanted 1 to 8"):
        explore_timeline({"many": [RUN] * 9})


def test_a_backward_is_noted_with_its_gradients() -> None:
    events: list[Event] = []
    layer = torch.nn.Linear(3, 2)
    loss = layer(torch.ones(1, 3)).sum()
    note_backward(layer.parameters(), loss.backward, events)
    assert sorted(what for what, *_ in events) == ["backward", "gradient", "gradient"]
    (whole,) = (event for event in events if event[0] == "backward")
    assert all(whole[2] <= begin <= whole[3] for _, _, begin, _ in events[:2])
    layer(torch.ones(1, 3)).sum().backward()
    assert len(events) == 3  # its hooks are gone
