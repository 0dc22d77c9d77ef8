"""What is said of all of a wrong output: only what holds of every element."""

from __future__ import annotations

import pytest
import torch

from autograder.judge.relation import relation


def said(got: torch.Tensor, wanted: torch.Tensor, **inputs: torch.Tensor | int) -> str:
    bad = ~torch.isclose(got, wanted, rtol=1e-5, equal_nan=True)
    return relation("out", got, wanted, bad, inputs)


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(3))


W, V = normal(32, 48), normal(640)
ROWS, COLUMNS = 1 + normal(32, 1).abs(), 1 + normal(48).abs()
EVERY_FOURTH = torch.where(torch.arange(640) % 4 == 1, 9.0, V)
LATE = torch.where(torch.arange(640) < 512, V, 2 * V)


@pytest.mark.parametrize(
    ("got", "wanted", "words"),
    [
        (V + 1, V, " Each is 1 more than wanted."),
        (2 * V, V, " Each is 2 times what is wanted."),
        (V / 8, V, " Each is 1/8 times what is wanted."),
        (-V, V, " Each has the wrong sign."),
        (0 * V, V, " out is 0 everywhere."),
        (W * ROWS, W, f" Each row is off by one factor, the first by "
                      f"{float(ROWS[0]):.4g}."),
        (W + COLUMNS, W, f" In each column all are off by as much, in the first "
                         f"{float(COLUMNS[0]):.4g} more than wanted."),
        (W.T.reshape(32, 48), W, " out holds the transpose of what is wanted."),
        (V.roll(-1), V, " Element i of out is what belongs into element i + 1."),
        (V.roll(3), V, " Element i of out is what belongs into element i - 3."),
        (W.roll(-1, 0), W, " Row i of out is what belongs into row i + 1."),
        (V.flip(0), V, " The values of out are right, and stand in other places."),
        (LATE, V, " The wrong ones are all elements from 512 on. Each is 2 times what "
                  "is wanted."),
        (EVERY_FOURTH, V, " The wrong ones are the elements at multiples of 4 plus 1."),
        (torch.where(torch.arange(48) < 40, W.cos() + 3, W), W,
         " The wrong ones are the columns before 40."),
        # Of these nothing can be said.
        (normal(640) * V, V, ""),
        (normal(32, 48).sin() + W, W, ""),
        (torch.tensor([2.0, 4.0]), torch.tensor([1.0, 2.0]), ""),
        (torch.full((640,), float("nan")), V, ""),
    ],
)  # fmt: skip
def test_what_holds_of_every_element_is_said(
    got: torch.Tensor, wanted: torch.Tensor, words: str
) -> None:
    assert said(got, wanted) == words


def test_an_input_that_came_back_is_named() -> None:
    assert said(V, 3 + V.sin(), n=640, x=V) == " It is x, unchanged."


def test_roundings_to_a_half_do_not_hide_a_factor() -> None:
    half = (2 * V).half().float()
    assert said(half, V) == " Each is 2 times what is wanted."
