"""Chapter 18: generating the dear way is right and loses points; models are guarded."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from autograder.exercise import Exercise
from autograder.exercises import all_exercises
from autograder.judge.judge import Judge
from autograder.judge.results import Result
from autograder.regions import cell_source
from autograder.submission.submitted import Cells

EXERCISES = all_exercises()
GENERATE = EXERCISES["generate"]
COMPRESS = EXERCISES["compress_model"]

AGAIN = """\
    made = prompt.new_full((new,), end)
    text = prompt
    for index in range(new):
        cache = model.new_cache(len(text))
        logits = model(text, torch.arange(len(text)), cache)[-1]
        if temperature > 0:
            logits = logits / temperature + noise[index]
        made[index] = logits.argmax()
        text = torch.cat((text, made[index : index + 1]))
        if made[index] == end:
            break
    return made
"""


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge(seed=5, device="cpu") as made:
        yield made


def grade(judge: Judge, exercise: Exercise, cell: str) -> Result:
    return judge.grade(exercise, Cells({exercise.id: cell}))


def answer(stem: str) -> str:
    return cell_source(EXERCISES[stem], solved=True)


def body_of(cell: str) -> str:
    return cell[cell.index("    new = len(noise)\n") + len("    new = len(noise)\n") :]


def test_computing_everything_again_is_right_and_loses_the_counts(judge: Judge) -> None:
    cell = answer("generate")
    result = grade(judge, GENERATE, cell.replace(body_of(cell), AGAIN))
    gates = {gate.name: gate for gate in result.gates}
    assert gates["right"].status == "passed" != gates["counts"].status
    assert "positions computed" in gates["counts"].message
    assert 0 < result.earned < GENERATE.points


def test_a_prompt_token_by_token_loses_the_counts(judge: Judge) -> None:
    cell = answer("generate").replace(
        "    tokens, first = prompt, 0\n",
        "    for place in range(len(prompt) - 1):\n"
        "        at = torch.arange(place, place + 1)\n"
        "        model(prompt[place : place + 1], at, cache)\n"
        "    tokens, first = prompt[-1:], len(prompt) - 1\n",
    )
    gates = {gate.name: gate for gate in grade(judge, GENERATE, cell).gates}
    assert gates["right"].status == "passed" != gates["counts"].status
    assert "calls of model" in gates["counts"].message


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("torch.arange(first, first + len(tokens))", "torch.arange(first, first + 1)",
         "positions of shape (1,)"),
        ("torch.arange(first, first + len(tokens))",
         "torch.arange(len(tokens)) + 10**6", "and the cache has room for"),
    ],
)  # fmt: skip
def test_what_no_model_takes_is_said(
    judge: Judge, old: str, new: str, message: str
) -> None:
    result = grade(judge, GENERATE, answer("generate").replace(old, new))
    assert message in " ".join(gate.message for gate in result.gates)


def test_a_model_that_was_changed_is_said(judge: Judge) -> None:
    cell = answer("compress_model").replace(
        "tensor.float().view(", "tensor.mul_(1.0).float().neg_().neg_().view("
    )
    assert grade(judge, COMPRESS, cell).passed  # equal numbers are no change
    cell = cell.replace("mul_(1.0)", "mul_(2.0)")
    result = grade(judge, COMPRESS, cell)
    assert "was changed" in " ".join(gate.message for gate in result.gates)
