"""The online rule by itself, in PyTorch."""

from __future__ import annotations

import torch

from autograder.exercise import (
    Case,
    Exercise,
    Output,
    Problem,
    Structure,
    Tolerance,
    withheld,
)
from autograder.exercises.softmax.shared import FACTOR

BEGINNINGS = {
    "begun": "some seen before",
    "empty": "nothing seen before",
    "masked": "rows of -inf, some with nothing before",
    "large": "values of some 10,000",
    "lowest": "some at the lowest float",
    "nan": "a NaN in one row",
}


def update_case(rows: int, columns: int, regime: str = "begun") -> Case:
    """Return a case of one shape, named as the learner reads it."""
    name = f"{rows} x {columns}, {BEGINNINGS[regime]}"
    return Case(name, {"rows": rows, "columns": columns}, regime)


def _update_problem(case: Case, generator: torch.Generator) -> Problem:
    rows, columns = case.sizes["rows"], case.sizes["columns"]
    values = 2 * torch.randn(rows, columns, generator=generator)
    maximum = 2 * torch.randn(rows, generator=generator)
    # Of either kind: rows whose maximum grows, and rows whose does not.
    maximum += 4.0 * (torch.arange(rows) % 2)
    total = 1 + 5 * torch.rand(rows, generator=generator)
    if case.regime == "large":
        values, maximum = values * 10_000, maximum * 10_000
    if case.regime == "masked":
        values[torch.rand(rows, columns, generator=generator) < 0.2] = -torch.inf
        values[:2] = -torch.inf
    if case.regime in ("empty", "masked"):
        nothing = slice(None) if case.regime == "empty" else slice(1, 3)
        maximum[nothing], total[nothing] = -torch.inf, 0.0
    if case.regime == "lowest":  # as a mask has them that knows no -inf
        lowest = torch.finfo(torch.float32).min
        values[torch.rand(rows, columns, generator=generator) < 0.2] = lowest
        values[0] = maximum[1] = lowest
        maximum[0], total[0] = -torch.inf, 0.0
    if case.regime == "nan":
        values[rows // 2, columns // 3] = torch.nan
    return Problem(
        {"maximum": maximum, "total": total, "values": values},
        {
            "maximum": Output((rows,), torch.float32),
            "total": Output((rows,), torch.float32),
        },
    )


ONLINE_UPDATE = Exercise(
    id="online_update",
    title="The online rule",
    kind="warm-up",
    points=10,
    language="python",
    entry="function",
    name="online_update",
    source="solutions/softmax/online_update.py",
    goal="Take more values into a maximum and a sum of exponentials, without seeing "
    "the earlier ones again.",
    requirements=(
        "`total` is the sum of exp(x - maximum) over all x so far; return the new "
        "`(maximum, total)`.",
        "A maximum of -inf with total 0 is the empty beginning.",
        "Where nothing but -inf has been seen, it stays (-inf, 0): no NaN.",
        "A NaN among a row's values makes both of its numbers NaN, as torch.maximum "
        "does.",
        "By maximum, exp and sum: torch's logsumexp and softmax know the rule already.",
    ),
    problem=_update_problem,
    reference=withheld,
    cases=(
        update_case(6, 32),
        update_case(4, 33, "empty"),
        update_case(8, 7, "masked"),
        update_case(5, 1),
        update_case(7, 20, "large"),
        update_case(5, 16, "lowest"),
        update_case(3, 12, "nan"),
    ),
    tolerance=Tolerance(FACTOR),
    hints=(
        "Suppose the maximum grows by 3. By what must each exp(x - maximum) that is in "
        "the total be multiplied? It is the same number for all of them.",
        "higher = torch.maximum(maximum, values.amax(dim=1)); the old total is "
        "multiplied by exp(maximum - higher), and exp(values - higher) is added. What "
        "is -inf - -inf?",
        "base = torch.where(higher == -math.inf, 0.0, higher); total * "
        "torch.exp(maximum - base) + torch.exp(values - base[:, None]).sum(dim=1).",
    ),
    onward="Take the values in one at a time, then all at once: do the bits agree?",
    structure=(
        Structure(
            runs_no=("logsumexp", "logaddexp", "logcumsumexp", "softmax"),
            message="The values are right, and torch's own rule made them: write it "
            "with maximum, exp and sum.",
        ),
    ),
    prelude="import math\n\nimport torch\nimport kernelwright as kw\n\n"
    "Tensor = torch.Tensor\n",
)
