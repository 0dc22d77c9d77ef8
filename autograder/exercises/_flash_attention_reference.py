"""Chapter 9: standard attention, in torch."""

from __future__ import annotations

import math
from collections.abc import Callable

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
)
from autograder.exercises._flash_attention import (
    STEM,
    TOLERANCE,
    case_of,
    draw_heads,
    hidden_shapes,
    reference,
    scale_of,
)

PRELUDE = "import math\n\nimport torch\n\nTensor = torch.Tensor\n"

BY_HAND = Structure(
    runs_no=("scaled_dot_product", "multi_head_attention", "flash_attention"),
    message="The values are right, and torch's own attention made them: write it with "
    "products, exponentials and sums.",
)

# --- attention_reference ----------------------------------------------------------


def _reference_problem(case: Case, generator: torch.Generator) -> Problem:
    q, k, v = draw_heads(case, generator, head_dim=16)
    seen = torch.rand(q.shape[1], k.shape[1], generator=generator) < 0.7
    seen[3::4] = False  # queries that see nothing
    seen[1::4] = True  # and such that see all
    return Problem(
        {"q": q, "k": k, "v": v, "seen": seen},
        {"out": Output(tuple(q.shape), torch.float32)},
    )


def scores_of(arguments: Arguments, power: float = 1) -> torch.Tensor:
    q, k = tensor(arguments, "q"), tensor(arguments, "k")
    scores: torch.Tensor = q @ k.mT * scale_of(arguments) ** power
    return scores


def attend_by(arguments: Arguments, weights: torch.Tensor) -> Outputs:
    return {"out": weights @ tensor(arguments, "v")}


def _hidden_scores(arguments: Arguments, power: float = 1) -> torch.Tensor:
    seen = tensor(arguments, "seen")
    return scores_of(arguments, power).masked_fill(~seen, -math.inf)


def _scaled(power: float) -> Callable[[Arguments], Outputs]:
    def output(arguments: Arguments) -> Outputs:
        scores = _hidden_scores(arguments, power)
        return attend_by(arguments, torch.softmax(scores, -1).nan_to_num(0.0))

    return output


def _by_root_of(size: Callable[[Arguments], int]) -> Callable[[Arguments], Outputs]:
    """Divide the scores by the root of another number than head_dim."""

    def output(arguments: Arguments) -> Outputs:
        power = math.log(size(arguments)) / math.log(tensor(arguments, "q").shape[-1])
        return _scaled(power)(arguments)

    return output


def _weights_scaled(arguments: Arguments) -> Outputs:
    out = _scaled(0)(arguments)["out"]
    return {"out": out * scale_of(arguments)}


def _without_maximum(arguments: Arguments) -> Outputs:
    made = torch.exp(_hidden_scores(arguments))
    weights = made / made.sum(-1, keepdim=True)
    return attend_by(arguments, _blank_rows(arguments, weights))


def _one_maximum(arguments: Arguments) -> Outputs:
    scores = _hidden_scores(arguments)
    made = torch.exp(scores - scores.max())
    weights = made / made.sum(-1, keepdim=True)
    return attend_by(arguments, _blank_rows(arguments, weights))


def _plus_infinity(arguments: Arguments) -> Outputs:
    seen = tensor(arguments, "seen")
    scores = scores_of(arguments).masked_fill(~seen, math.inf)
    return attend_by(arguments, _blank_rows(arguments, torch.softmax(scores, -1)))


def _low_number(arguments: Arguments) -> Outputs:
    scores = scores_of(arguments).masked_fill(~tensor(arguments, "seen"), -1e4)
    return attend_by(arguments, _blank_rows(arguments, torch.softmax(scores, -1)))


def _blank_unless_all(arguments: Arguments) -> Outputs:
    weights = torch.softmax(_hidden_scores(arguments), -1)
    sees_all = tensor(arguments, "seen").all(-1, keepdim=True)
    return attend_by(arguments, torch.where(sees_all, weights, 0.0))


def _blank_exchanged(arguments: Arguments) -> Outputs:
    weights = torch.softmax(_hidden_scores(arguments), -1)
    sees = tensor(arguments, "seen").any(-1, keepdim=True)
    return attend_by(arguments, torch.where(sees, 0.0, weights))


def _nan_rows(arguments: Arguments) -> Outputs:
    scores = scores_of(arguments).masked_fill(~tensor(arguments, "seen"), -math.inf)
    return attend_by(arguments, torch.softmax(scores, -1))


def _hidden_after(arguments: Arguments) -> Outputs:
    weights = torch.softmax(scores_of(arguments), -1)
    return attend_by(arguments, weights.masked_fill(~tensor(arguments, "seen"), 0.0))


def _over_queries(arguments: Arguments) -> Outputs:
    scores = scores_of(arguments).masked_fill(~tensor(arguments, "seen"), -math.inf)
    return attend_by(arguments, torch.softmax(scores, -2).nan_to_num(0.0))


def _upside_down(arguments: Arguments) -> Outputs:
    scores = scores_of(arguments).masked_fill(tensor(arguments, "seen"), -math.inf)
    return attend_by(arguments, torch.softmax(scores, -1).nan_to_num(0.0))


def _upside_down_and_blank(arguments: Arguments) -> Outputs:
    scores = scores_of(arguments).masked_fill(tensor(arguments, "seen"), -math.inf)
    return attend_by(arguments, _blank_rows(arguments, torch.softmax(scores, -1)))


def _not_hidden(arguments: Arguments) -> Outputs:
    return attend_by(arguments, torch.softmax(scores_of(arguments), -1))


def _scaled_up(arguments: Arguments) -> Outputs:
    return _scaled(-1)(arguments)


def _times_seen(arguments: Arguments) -> Outputs:
    scores = scores_of(arguments) * tensor(arguments, "seen")
    weights = torch.softmax(scores, -1)
    return attend_by(arguments, _blank_rows(arguments, weights))


def _over_heads(arguments: Arguments) -> Outputs:
    scores = scores_of(arguments).masked_fill(~tensor(arguments, "seen"), -math.inf)
    return attend_by(arguments, _blank_rows(arguments, torch.softmax(scores, 0)))


def _not_divided(arguments: Arguments) -> Outputs:
    scores = scores_of(arguments).masked_fill(~tensor(arguments, "seen"), -math.inf)
    return attend_by(arguments, torch.exp(scores))


def _mean_of_keys(arguments: Arguments) -> Outputs:
    scores = scores_of(arguments).masked_fill(~tensor(arguments, "seen"), -math.inf)
    weights = _blank_rows(arguments, torch.softmax(scores, -1))
    return {"out": weights @ tensor(arguments, "k")}


def _blank_rows(arguments: Arguments, weights: torch.Tensor) -> torch.Tensor:
    sees = tensor(arguments, "seen").any(-1, keepdim=True)
    return torch.where(sees, weights, 0.0)


def _not_hidden_but_blank(arguments: Arguments) -> Outputs:
    weights = torch.softmax(scores_of(arguments), -1)
    return attend_by(arguments, _blank_rows(arguments, weights))


def _uniform(arguments: Arguments) -> Outputs:
    # -1e9 where -inf is wanted: a row of equal scores, however low, is a mean.
    scores = scores_of(arguments).masked_fill(~tensor(arguments, "seen"), -1e9)
    return attend_by(arguments, torch.softmax(scores, -1))


def _near(name: str, output: object, message: str) -> NearMiss:
    assert callable(output)
    return NearMiss(name, output, message)


ATTENTION_REFERENCE = Exercise(
    id="attention_reference",
    stem=STEM,
    title="Standard attention",
    kind="warm-up",
    points=10,
    language="python",
    entry="function",
    name="attention_reference",
    source="solutions/flash_attention/reference.py",
    goal="Write attention as its formula says it, with the whole matrix of scores.",
    requirements=(
        "q is (heads, q_len, head_dim); k and v are (heads, kv_len, head_dim).",
        "Scores are scaled by 1 / sqrt(head_dim); a softmax runs along the keys.",
        "seen is bool, (q_len, kv_len): hidden keys get weight 0, and the others of "
        "the row add up to 1.",
        "A query that sees no key gets zeros.",
        "Right for scores however high or low: up to 10,000, or all near -20,000.",
    ),
    problem=_reference_problem,
    reference=reference,
    cases=(
        case_of(24, 40, heads=2),
        case_of(33, 31),
        case_of(1, 1),
        case_of(5, 1),
        case_of(16, 16),
        case_of(40, 57, "large"),
        case_of(13, 9, "low"),
    ),
    hidden=lambda generator: hidden_shapes(generator),
    tolerance=TOLERANCE,
    near_misses=(
        # Those first that are right in more cases: an answer that was right there can
        # have made only them.
        _near(
            "a low number for -inf",
            _low_number,
            "Hidden scores are low, and where those of the others are lower still the "
            "hidden ones take all the weight: -inf alone is below all.",
        ),
        _near(
            "exponentials without a maximum",
            _without_maximum,
            "Small scores come out right, and large ones overflow: beyond exp(88) an "
            "exponential is infinite. torch.softmax takes exp(score - maximum).",
        ),
        _near(
            "one maximum for all",
            _one_maximum,
            "Small scores come out right, and large ones vanish: one maximum serves "
            "all queries, and to those whose scores are lower every weight is 0. "
            "torch.softmax(scores, dim=-1) takes each query's own.",
        ),
        _near(
            "scale forgotten",
            _scaled(0),
            "The scores are not scaled: divide q k^T by sqrt(head_dim).",
        ),
        _near(
            "scale twice",
            _scaled(2),
            "The scores are scaled twice: divide by sqrt(head_dim), not by head_dim.",
        ),
        _near(
            "multiplied by the root",
            _scaled_up,
            "The scores are multiplied by sqrt(head_dim): divide by it.",
        ),
        *(
            _near(
                f"divided by the root of {what}",
                _by_root_of(size),
                f"The scores are divided by the square root of {what}: it is that of "
                "head_dim, q.shape[-1], which is 16 here.",
            )
            for what, size in (
                ("64", lambda arguments: 64),
                ("q_len", lambda arguments: tensor(arguments, "q").shape[-2]),
                ("kv_len", lambda arguments: tensor(arguments, "k").shape[-2]),
            )
        ),
        _near(
            "weights scaled",
            _weights_scaled,
            "The weights are divided by sqrt(head_dim), and so no longer add up to 1: "
            "it is the scores that are, before the softmax.",
        ),
        _near(
            "inf for -inf",
            _plus_infinity,
            "Hidden scores are +inf, the largest of all, and inf - inf is NaN: -inf "
            "makes a weight of 0.",
        ),
        _near(
            "blank unless all is seen",
            _blank_unless_all,
            "Every query that does not see all keys gets zeros: seen.any(dim=-1), not "
            "seen.all.",
        ),
        _near(
            "where turned round",
            _blank_exchanged,
            "Queries that see keys get zeros, and the others do not: torch.where("
            "condition, a, b) takes a where the condition holds.",
        ),
        *(
            _near(
                name,
                output,
                "Nothing is hidden: every query sees every key. masked_fill returns a "
                "new tensor and leaves the old one as it was: store what it returns.",
            )
            for name, output in (
                ("not hidden", _not_hidden),
                ("not hidden, rows blank", _not_hidden_but_blank),
            )
        ),
        _near(
            "hidden scores of 0",
            _times_seen,
            "Hidden scores are 0, and exp(0) is 1: a weight like any other. A score of "
            "-inf has weight 0.",
        ),
        _near(
            "over the heads",
            _over_heads,
            "The softmax runs over the heads: the weights of one query, along the "
            "keys, add up to 1. That is dim=-1.",
        ),
        _near(
            "not divided",
            _not_divided,
            "The exponentials are not divided by their sum: the weights of a query add "
            "up to 1, so take torch.softmax.",
        ),
        _near(
            "keys for values",
            _mean_of_keys,
            "The weights are multiplied with the keys: the output is a mean of values.",
        ),
        _near(
            "rows that see nothing",
            _nan_rows,
            "A query that sees no key gives NaN: the softmax of nothing but -inf is "
            "0 / 0. Such rows are zeros: torch.where on seen.any(dim=-1).",
        ),
        _near(
            "hidden after the softmax",
            _hidden_after,
            "Hidden keys are set to 0 after the softmax, so the weights that are left "
            "no longer add up to 1: hide the scores, with -inf, before it.",
        ),
        _near(
            "over the queries",
            _over_queries,
            "The softmax runs over the queries: the weights of one query, along the "
            "keys, add up to 1. That is dim=-1.",
        ),
        *(
            _near(
                name,
                output,
                "The mask is upside down: seen is true where the query sees the key, "
                "so what is hidden is ~seen.",
            )
            for name, output in (
                ("mask upside down", _upside_down),
                ("mask upside down, rows blank", _upside_down_and_blank),
            )
        ),
        _near(
            "a large number for -inf",
            _uniform,
            "A query that sees no key gets the mean of all values: -1e9 is not -inf, "
            "and a row of equal scores is a mean. Such rows are zeros.",
        ),
    ),
    hints=(
        "Three steps, three lines: scores, weights, output. What must happen to a "
        "hidden score so that its weight becomes 0?",
        "masked_fill(~seen, -math.inf) before the softmax. Then a row with nothing to "
        "see is 0 / 0: put zeros there.",
        "weights = torch.softmax(scores, dim=-1);  weights = torch.where(seen.any("
        "dim=-1, keepdim=True), weights, 0.0);  return weights @ v",
    ),
    onward="Measure its memory with kw.peak_memory, at 512 keys and at 1,024.",
    structure=(BY_HAND,),
    prelude=PRELUDE,
)
