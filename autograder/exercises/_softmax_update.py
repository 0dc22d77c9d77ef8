"""Chapter 8: the online rule by itself, in PyTorch."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
    Exercise,
    NearMiss,
    Output,
    Outputs,
    Problem,
    Structure,
    Tolerance,
)
from autograder.exercises._softmax import FACTOR, STEM, drawn, highest

_BEGINNINGS = {
    "begun": "some seen before",
    "empty": "nothing seen before",
    "masked": "rows of -inf, some with nothing before",
    "large": "values of some 10,000",
    "lowest": "some at the lowest float",
}


def _update_case(rows: int, columns: int, regime: str = "begun") -> Case:
    name = f"{rows} x {columns}, {_BEGINNINGS[regime]}"
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
    return Problem(
        {"maximum": maximum, "total": total, "values": values},
        {
            "maximum": Output((rows,), torch.float32),
            "total": Output((rows,), torch.float32),
        },
    )


def _update(
    arguments: Arguments,
    *,
    shrink: bool = True,
    upside_down: bool = False,
    keep: bool = True,
    compare: bool = True,
    guard: bool = True,
    take: bool = True,
) -> Outputs:
    """Take the values in, in float64, with the known mistakes."""
    names = ("maximum", "total", "values")
    maximum, total, values = (tensor(arguments, name).double() for name in names)
    new = highest(values)[:, 0]
    if compare:
        new = torch.maximum(new, maximum)
    base = new.masked_fill(new == -torch.inf, 0.0) if guard else new
    factor = torch.exp(maximum - base)
    if upside_down:
        factor = torch.exp(base - maximum)
    before = total * (factor if shrink else 1.0) if keep else 0.0
    added = torch.exp(values - base[:, None]).sum(1)
    return {"maximum": new, "total": before + added * take}


def _relative_to_the_old(arguments: Arguments) -> Outputs:
    maximum = tensor(arguments, "maximum").double()
    values = tensor(arguments, "values").double()
    right = _update(arguments)
    added = torch.exp(values - maximum[:, None]).sum(1)
    # What fp32 makes of it: exp ends at 88.7.
    total = (tensor(arguments, "total").double() + added).float().double()
    return {"maximum": right["maximum"], "total": total}


def _by_the_values(arguments: Arguments) -> Outputs:
    """Bring the old total to the values' maximum, in fp32."""
    before = tensor(arguments, "total")
    highest_here = highest(tensor(arguments, "values"))[:, 0]
    mended = before * torch.exp(tensor(arguments, "maximum") - highest_here)
    right, kept = _update(arguments), _update(arguments, take=False)
    total = mended.double() + right["total"] - kept["total"]
    return {"maximum": right["maximum"], "total": total}


def _zero_for_nothing(arguments: Arguments) -> Outputs:
    right = _update(arguments)
    nothing = right["maximum"] == -torch.inf
    return {**right, "maximum": right["maximum"].masked_fill(nothing, 0.0)}


def _from_a_number(arguments: Arguments) -> Outputs:
    """Take no less than -1e9 away from the values."""
    right = _update(arguments)
    below = right["maximum"] < -1e9
    return {**right, "total": right["total"].masked_fill(below, 0.0)}


def _exchanged(arguments: Arguments) -> Outputs:
    right = _update(arguments)
    return {"maximum": right["total"], "total": right["maximum"]}


def _not_shifted(arguments: Arguments) -> Outputs:
    values = tensor(arguments, "values")
    right, before = _update(arguments), _update(arguments, take=False)
    total = before["total"] + torch.exp(values).double().sum(1)
    return {"maximum": right["maximum"], "total": total.float().double()}


def _all_rows_added(arguments: Arguments) -> Outputs:
    right, before = _update(arguments), _update(arguments, take=False)
    total = before["total"] + (right["total"] - before["total"]).sum()
    return {"maximum": right["maximum"], "total": total}


def _highest_of_all_rows(arguments: Arguments) -> Outputs:
    wide = {**arguments}
    values = tensor(arguments, "values")
    # The largest of all rows as one more column, which then weighs nothing.
    most = values.amax().expand(len(values), 1)
    wide["values"] = torch.cat((values, most), 1)
    right = _update(wide)
    seen = torch.exp(most[:, 0].double() - right["maximum"])
    nothing = right["maximum"] == -torch.inf
    return {**right, "total": right["total"] - seen.masked_fill(nothing, 0.0)}


def _update_scale(arguments: Arguments) -> Outputs:
    names = ("maximum", "total", "values")
    maximum, before, values = (tensor(arguments, name).double() for name in names)
    right = _update(arguments)
    new = right["maximum"].nan_to_num(0.0, 0.0, 0.0)
    below = (new[:, None] - values).nan_to_num(0.0, 0.0, 0.0)
    e = torch.exp(values - new[:, None])
    fell = (new - maximum).nan_to_num(0.0, 0.0, 0.0)
    moved = (e * below).sum(1) + before * torch.exp(maximum - new) * fell
    root = values.shape[1] ** 0.5  # which the length brings
    total = (right["total"] * (4.0 + root) + moved) / root
    tiny = torch.finfo(torch.float32).tiny
    return {"maximum": new.abs(), "total": total.nan_to_num(0.0) + tiny}


def _hidden_updates(generator: torch.Generator) -> Iterator[Case]:
    def size() -> tuple[int, int]:
        return drawn(generator, 4, 14), drawn(generator, 2, 90)

    for regime in _BEGINNINGS:
        yield _update_case(*size(), regime)


ONLINE_UPDATE = Exercise(
    id="online_update",
    stem=STEM,
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
    ),
    problem=_update_problem,
    reference=_update,
    cases=(
        _update_case(6, 32),
        _update_case(4, 33, "empty"),
        _update_case(8, 7, "masked"),
        _update_case(5, 1),
        _update_case(7, 20, "large"),
        _update_case(5, 16, "lowest"),
    ),
    hidden=_hidden_updates,
    tolerance=Tolerance(
        FACTOR, length=lambda case: case.sizes["columns"], scale=_update_scale
    ),
    near_misses=(
        NearMiss(
            "not shrunk",
            lambda a: _update(a, shrink=False),
            "The old total still stands relative to the old maximum: multiply it by "
            "exp(old maximum - new maximum) before you add to it.",
        ),
        NearMiss(
            "upside down",
            lambda a: _update(a, upside_down=True),
            "The factor is upside down: a larger maximum makes the old total smaller, "
            "exp(old - new), not exp(new - old).",
        ),
        NearMiss(
            "relative to the old maximum",
            _relative_to_the_old,
            "The maximum is new and the total is still relative to the old one: take "
            "the new maximum away from the values, and bring the old total to it.",
        ),
        NearMiss(
            "earlier values forgotten",
            lambda a: _update(a, keep=False),
            "The total holds these values alone: add the old one, brought to the new "
            "maximum.",
        ),
        NearMiss(
            "old maximum forgotten",
            lambda a: _update(a, compare=False),
            "The maximum is that of these values alone: it is the larger of theirs and "
            "the old one.",
        ),
        NearMiss(
            "by the values' maximum",
            _by_the_values,
            "The old total is brought to the maximum of these values, which may be the "
            "smaller one: its factor is exp(old maximum - new maximum), with the new "
            "one the larger of the two.",
        ),
        NearMiss(
            "0 for nothing",
            _zero_for_nothing,
            "Where nothing but -inf has been seen the maximum stays -inf, and comes "
            "back as 0: the 0 is only for what is taken away. Return the maximum "
            "itself.",
        ),
        NearMiss(
            "from a number",
            _from_a_number,
            "A finite number stands in for -inf, and some values are below it: every "
            "exp(x - it) is 0, and so is the total. Ask whether the maximum is -inf, "
            "and take 0 away only there.",
        ),
        NearMiss(
            "exchanged",
            _exchanged,
            "The two come back in the wrong order: return maximum first, then total.",
        ),
        NearMiss(
            "not shifted",
            _not_shifted,
            "exp(values) is added as it is: the total counts exp(x - maximum), "
            "relative to the new maximum.",
        ),
        NearMiss(
            "all rows added",
            _all_rows_added,
            "The exponentials of all rows are in every total: each row has a sum of "
            "its own, .sum(dim=1).",
        ),
        NearMiss(
            "highest of all rows",
            _highest_of_all_rows,
            "Every row has the maximum of all rows: each has one of its own, "
            "values.amax(dim=1).",
        ),
        NearMiss(
            "nothing but -inf",
            lambda a: _update(a, guard=False),
            "Where all is -inf so far, the total is NaN: -inf - -inf is no number. "
            "There take 0 away instead, so that exp(-inf) gives 0.",
        ),
    ),
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
