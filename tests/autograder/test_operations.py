"""Python answers that have torch do what they are to write out."""

from __future__ import annotations

import pytest
from hostile import fails
from small_exercises import make_exercise, python_cell

from autograder.exercise import Structure
from autograder.exercises import all_exercises
from autograder.judge.judge import Judge
from autograder.submission.submitted import Cells

SAID = "The values are right, and torch's own product made them."
WITHOUT = make_exercise("twice", structure=(Structure(runs_no=("mul",), message=SAID),))
PRODUCTS = {
    "operator": "return 2 * x",
    "in place": "y = x.clone()\ny *= 2\nreturn y",
    "method": "return x.mul(2)",
    "by a name made up": "return getattr(torch, 'm' + 'ul')(x, 2)",
    "aten": "return torch.ops.aten.mul.Tensor(x, torch.tensor(2.0))",
    "in a lambda": "return (lambda f: f(x, 2))(torch.multiply)",
    "mapped": "return torch.vmap(lambda y: 2 * y)(x)",
    "inside another": "return torch.einsum('i,->i', x, torch.tensor(2.0))",
}


@pytest.mark.parametrize("name", ["attention_reference", "attention_tile"])
def test_attention_is_not_torchs_own(judge: Judge, name: str) -> None:
    """One that calls it under another name, with what the exercise gives."""
    exercise = all_exercises()[name]
    more = "seen" if name == "attention_reference" else "tile: int"
    mask = "attn_mask=seen" if name == "attention_reference" else ""
    cell = (
        f"# exercise: {name}\n"
        f"def {name}(q, k, v, {more}):\n"
        "    own = getattr(torch.nn.functional, 'scaled_dot_' + 'product_attention')\n"
        f"    return own(q, k, v, {mask}).nan_to_num()\n"
    )
    fails(judge.grade(exercise, Cells({name: cell})), "torch's own attention made them")


@pytest.mark.parametrize("body", PRODUCTS.values(), ids=PRODUCTS)
def test_the_operation_is_told_under_any_name(judge: Judge, body: str) -> None:
    result = judge.grade(WITHOUT, Cells({"twice": python_cell(body)}))
    fails(result, SAID)


def test_what_does_without_earns_all(judge: Judge) -> None:
    result = judge.grade(WITHOUT, Cells({"twice": python_cell("return x + x")}))
    assert result.passed and result.earned == 10.0, result.message


def test_a_wrong_answer_keeps_its_own_message(judge: Judge) -> None:
    result = judge.grade(WITHOUT, Cells({"twice": python_cell("return x * x")}))
    fails(result, "This is x squared.")


def test_what_torchs_compiler_runs_is_told(judge: Judge) -> None:
    body = "return torch.compile(lambda y: 2 * y, backend='eager')(x)"
    fails(judge.grade(WITHOUT, Cells({"twice": python_cell(body)})), SAID)
