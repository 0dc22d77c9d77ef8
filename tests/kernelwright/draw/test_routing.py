"""Tokens on their way to experts: what is said and drawn is what the counts say."""

from __future__ import annotations

import math
import re

import pytest
import torch

from kernelwright.draw import explore_routing
from kernelwright.draw.choices import Choices
from kernelwright.errors import ArgumentError


def _to_one_expert(logits: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Send all tokens to the first k experts."""
    chosen = torch.arange(k).expand(len(logits), k)
    return torch.full(chosen.shape, 1 / k), chosen


def test_of_a_full_expert_the_rest_is_dropped_and_said() -> None:
    explorer = explore_routing(_to_one_expert, tokens=12, experts=4, k=1)
    free = explorer.picture(0, "none")
    assert "expert 0 is wanted by 12 tokens, 4 times its fair share of 3" in free.words
    assert "3 experts by none; nobody is dropped" in free.words
    full = explorer.picture(0, 1)
    assert "each takes 3: 9 of 12 pairs are dropped, 9 tokens with all" in full.words
    assert "9 rows stay empty" in full.words


def test_first_choices_come_before_second_ones() -> None:
    def crossed(logits: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        chosen = torch.tensor([[1, 0], [0, 1]]).repeat(len(logits) // 2, 1)
        return torch.ones(chosen.shape), chosen

    explorer = explore_routing(crossed, tokens=4, experts=2)
    # Room for 4 of 8 pairs: the second choices are those that are dropped.
    words = explore_routing(crossed, tokens=4, experts=2, capacities=(0.5,)).picture
    assert "4 of 8 pairs are dropped, 0 tokens with all" in words(0, 0.5).words
    assert "nobody is dropped" in explorer.picture(0, "none").words


def test_lines_are_as_many_as_pairs() -> None:
    explorer = explore_routing(tokens=20, experts=5, k=2)
    for capacity in ("none", 1):
        picture = explorer.picture(3, capacity)
        svg = picture.drawn.frames[0].svg
        found = re.search(r"(\d+) of 40 pairs", picture.words)
        lost = int(found.group(1)) if found else 0
        dashed = re.findall(r'stroke-dasharray="4 3" d="([^"]+)"', svg)
        assert sum(path.count("M") for path in dashed) == lost
        kept = re.findall(r'stroke-opacity=".75" d="([^"]+)"', svg)
        assert sum(path.count("M") for path in kept) == 2 * (40 - lost)
        assert (lost > 0) == (capacity == 1)


def test_more_imbalance_more_tokens_for_the_first_expert() -> None:
    explorer = explore_routing(tokens=32, experts=8, imbalances=(0, 1, 2, 4, 8))
    most = []
    for imbalance in (0, 1, 2, 4, 8):
        said = re.search(r"wanted by (\d+)", explorer.picture(imbalance, "none").words)
        assert said
        most.append(int(said.group(1)))
    assert most == sorted(most) and most[-1] > most[0]


def test_a_page_has_a_slider_for_each_parameter() -> None:
    figure = explore_routing(tokens=6, experts=3).figure()
    assert isinstance(figure, Choices)
    assert len(figure.frames) == math.prod(len(v) for _, v in figure.choices) == 16
    page = figure._repr_html_()
    assert page.count('type="range"') == 2
    assert "imbalance: <span" in page and "capacity: <span" in page


@pytest.mark.parametrize("sizes", [{"tokens": 33}, {"experts": 9}, {"k": 7}])
def test_what_cannot_be_read_is_refused(sizes: dict[str, int]) -> None:
    with pytest.raises(ArgumentError, match="one picture"):
        explore_routing(**sizes)  # type: ignore[arg-type]
