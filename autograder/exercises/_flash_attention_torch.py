"""Chapter 9's exercises in PyTorch: with the matrix of scores, and without."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

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
from autograder.exercises._flash_attention_loop import Loop
from autograder.exercises._flash_attention_mistakes import loop_mistakes

_PRELUDE = "import math\n\nimport torch\n\nTensor = torch.Tensor\n"

_BY_HAND = Structure(
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


def _scores(arguments: Arguments, power: float = 1) -> torch.Tensor:
    q, k = tensor(arguments, "q"), tensor(arguments, "k")
    scores: torch.Tensor = q @ k.mT * scale_of(arguments) ** power
    return scores


def _attend(arguments: Arguments, weights: torch.Tensor) -> Outputs:
    return {"out": weights @ tensor(arguments, "v")}


def _hidden_scores(arguments: Arguments, power: float = 1) -> torch.Tensor:
    seen = tensor(arguments, "seen")
    return _scores(arguments, power).masked_fill(~seen, -math.inf)


def _scaled(power: float) -> Callable[[Arguments], Outputs]:
    def output(arguments: Arguments) -> Outputs:
        scores = _hidden_scores(arguments, power)
        return _attend(arguments, torch.softmax(scores, -1).nan_to_num(0.0))

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
    return _attend(arguments, _blank_rows(arguments, weights))


def _one_maximum(arguments: Arguments) -> Outputs:
    scores = _hidden_scores(arguments)
    made = torch.exp(scores - scores.max())
    weights = made / made.sum(-1, keepdim=True)
    return _attend(arguments, _blank_rows(arguments, weights))


def _plus_infinity(arguments: Arguments) -> Outputs:
    seen = tensor(arguments, "seen")
    scores = _scores(arguments).masked_fill(~seen, math.inf)
    return _attend(arguments, _blank_rows(arguments, torch.softmax(scores, -1)))


def _low_number(arguments: Arguments) -> Outputs:
    scores = _scores(arguments).masked_fill(~tensor(arguments, "seen"), -1e4)
    return _attend(arguments, _blank_rows(arguments, torch.softmax(scores, -1)))


def _blank_unless_all(arguments: Arguments) -> Outputs:
    weights = torch.softmax(_hidden_scores(arguments), -1)
    sees_all = tensor(arguments, "seen").all(-1, keepdim=True)
    return _attend(arguments, torch.where(sees_all, weights, 0.0))


def _blank_exchanged(arguments: Arguments) -> Outputs:
    weights = torch.softmax(_hidden_scores(arguments), -1)
    sees = tensor(arguments, "seen").any(-1, keepdim=True)
    return _attend(arguments, torch.where(sees, 0.0, weights))


def _nan_rows(arguments: Arguments) -> Outputs:
    scores = _scores(arguments).masked_fill(~tensor(arguments, "seen"), -math.inf)
    return _attend(arguments, torch.softmax(scores, -1))


def _hidden_after(arguments: Arguments) -> Outputs:
    weights = torch.softmax(_scores(arguments), -1)
    return _attend(arguments, weights.masked_fill(~tensor(arguments, "seen"), 0.0))


def _over_queries(arguments: Arguments) -> Outputs:
    scores = _scores(arguments).masked_fill(~tensor(arguments, "seen"), -math.inf)
    return _attend(arguments, torch.softmax(scores, -2).nan_to_num(0.0))


def _upside_down(arguments: Arguments) -> Outputs:
    scores = _scores(arguments).masked_fill(tensor(arguments, "seen"), -math.inf)
    return _attend(arguments, torch.softmax(scores, -1).nan_to_num(0.0))


def _upside_down_and_blank(arguments: Arguments) -> Outputs:
    scores = _scores(arguments).masked_fill(tensor(arguments, "seen"), -math.inf)
    return _attend(arguments, _blank_rows(arguments, torch.softmax(scores, -1)))


def _not_hidden(arguments: Arguments) -> Outputs:
    return _attend(arguments, torch.softmax(_scores(arguments), -1))


def _scaled_up(arguments: Arguments) -> Outputs:
    return _scaled(-1)(arguments)


def _times_seen(arguments: Arguments) -> Outputs:
    scores = _scores(arguments) * tensor(arguments, "seen")
    weights = torch.softmax(scores, -1)
    return _attend(arguments, _blank_rows(arguments, weights))


def _over_heads(arguments: Arguments) -> Outputs:
    scores = _scores(arguments).masked_fill(~tensor(arguments, "seen"), -math.inf)
    return _attend(arguments, _blank_rows(arguments, torch.softmax(scores, 0)))


def _not_divided(arguments: Arguments) -> Outputs:
    scores = _scores(arguments).masked_fill(~tensor(arguments, "seen"), -math.inf)
    return _attend(arguments, torch.exp(scores))


def _mean_of_keys(arguments: Arguments) -> Outputs:
    scores = _scores(arguments).masked_fill(~tensor(arguments, "seen"), -math.inf)
    weights = _blank_rows(arguments, torch.softmax(scores, -1))
    return {"out": weights @ tensor(arguments, "k")}


def _blank_rows(arguments: Arguments, weights: torch.Tensor) -> torch.Tensor:
    sees = tensor(arguments, "seen").any(-1, keepdim=True)
    return torch.where(sees, weights, 0.0)


def _not_hidden_but_blank(arguments: Arguments) -> Outputs:
    weights = torch.softmax(_scores(arguments), -1)
    return _attend(arguments, _blank_rows(arguments, weights))


def _uniform(arguments: Arguments) -> Outputs:
    # -1e9 where -inf is wanted: a row of equal scores, however low, is a mean.
    scores = _scores(arguments).masked_fill(~tensor(arguments, "seen"), -1e9)
    return _attend(arguments, torch.softmax(scores, -1))


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
    structure=(_BY_HAND,),
    prelude=_PRELUDE,
)

# --- attention_tile ---------------------------------------------------------------

_TILED = (
    _PRELUDE
    + '''
import kernelwright as kw


def __adapt__(answer, q, k, v, tile):
    """Call the answer; where the scores are many, see what memory it took."""
    out = answer(q, k, v, tile)
    linear = torch.tensor(True, device=q.device)
    if q.shape[-2] * k.shape[-2] >= 2**18:
        scores = 4 * q[..., 0].numel() * k.shape[-2]
        use = kw.peak_memory(answer, q, k, v, tile, warm_up=False)
        linear = torch.tensor(use.peak_bytes < scores // 2, device=q.device)
    return out, linear
'''
)


def tiled_case(q_len: int, kv_len: int, tile: int, regime: str = "distinct") -> Case:
    """Return a case with a tile's size in its name."""
    case = case_of(q_len, kv_len, regime, tile=tile)
    head, _, regime_words = case.name.rpartition(", ")
    return Case(f"{head}, tiles of {tile}, {regime_words}", case.sizes, regime)


def _tile_problem(case: Case, generator: torch.Generator) -> Problem:
    q, k, v = draw_heads(case, generator, head_dim=16)
    return Problem(
        {"q": q, "k": k, "v": v, "tile": case.sizes["tile"]},
        {
            "out": Output(tuple(q.shape), torch.float32),
            "linear": Output((), torch.bool),
        },
    )


def _tile_reference(arguments: Arguments) -> Outputs:
    return {**reference(arguments), "linear": torch.tensor(True)}


def _tile_of(arguments: Arguments) -> int:
    tile = arguments["tile"]
    assert isinstance(tile, int)
    return tile


def _looped(miss: NearMiss) -> NearMiss:
    """Give a mistake of the loop the case's own tile, and the second output."""
    found = miss.output

    def output(arguments: Arguments) -> Outputs:
        own = found
        if isinstance(found, Loop):
            own = replace(found, tile=_tile_of(arguments))
        return {**own(arguments), "linear": torch.tensor(True)}

    return NearMiss(miss.name, output, miss.message)


_SOFTMAX_A_TILE = (
    "Each tile has a softmax of its own, and all tiles count alike: a tile of low "
    "scores must weigh less. Add exponentials, and divide once, at the end."
)
_OF_THE_TILE = (
    NearMiss(
        "a softmax in each tile",
        lambda arguments: _mean_of_softmaxes(arguments),
        _SOFTMAX_A_TILE,
    ),
    NearMiss(
        "a softmax in each tile, mended",
        Loop(1, shared="both"),
        _SOFTMAX_A_TILE,
    ),
    NearMiss(
        "each tile divided",
        Loop(1, shared="sum"),
        "Each tile's weighted values are divided by its weights before they are added: "
        "divide once, behind the loop.",
    ),
    NearMiss(
        "all queries' weights",
        Loop(1, pooled=True),
        "weight adds up the weights of all queries: each has a sum of its own, "
        "sum(dim=-1, keepdim=True).",
    ),
    NearMiss(
        "divided by the root of the tile",
        lambda arguments: _root_of_the_tile(arguments),
        "The scores are divided by the square root of the tile's size: it is that of "
        "head_dim, q.shape[-1].",
    ),
)


def _mean_of_softmaxes(arguments: Arguments) -> Outputs:
    v, tile = tensor(arguments, "v"), _tile_of(arguments)
    pairs = zip(_scores(arguments).split(tile, -1), v.split(tile, -2), strict=True)
    made = torch.stack([torch.softmax(s, -1) @ values for s, values in pairs])
    return {"out": made.mean(0)}


def _root_of_the_tile(arguments: Arguments) -> Outputs:
    scores = _scores(arguments, 0) / math.sqrt(_tile_of(arguments))
    return _attend(arguments, torch.softmax(scores, -1))


def _tile_hidden(generator: torch.Generator) -> Iterator[Case]:
    for case in hidden_shapes(generator):
        tile = int(torch.randint(1, 40, (), generator=generator))
        q_len, kv_len = case.sizes["q_len"], case.sizes["kv_len"]
        yield tiled_case(q_len, kv_len, tile, case.regime)


ATTENTION_TILE = Exercise(
    id="attention_tile",
    stem=STEM,
    title="A tile of keys at a time",
    kind="core",
    points=15,
    language="python",
    entry="function",
    name="attention_tile",
    source="solutions/flash_attention/reference.py",
    goal="Compute the same output without the matrix of scores: take the keys tile by "
    "tile into a running maximum, weight and sum.",
    requirements=(
        "No tensor of all scores exists: memory grows with the length, not with its "
        "square.",
        "Right for every tile size, and for scores in any order, however high or low: "
        "up to 10,000, or all near -20,000.",
    ),
    problem=_tile_problem,
    reference=_tile_reference,
    cases=(
        tiled_case(12, 40, 8),
        tiled_case(9, 33, 8),
        tiled_case(512, 512, 32),
        tiled_case(1, 5, 1),
        tiled_case(7, 5, 64),
        tiled_case(20, 64, 16, "rising"),
        tiled_case(20, 50, 16, "large"),
        tiled_case(9, 21, 8, "low"),
    ),
    hidden=_tile_hidden,
    tolerance=TOLERANCE,
    near_misses=(
        *(_looped(miss) for miss in loop_mistakes(1, scaled=True)),
        *(_looped(miss) for miss in _OF_THE_TILE),
        NearMiss(
            "all scores at once",
            lambda arguments: {**reference(arguments), "linear": torch.tensor(False)},
            "The output is right, and a tensor as large as the matrix of all scores "
            "existed on the way: compute the scores of one tile only, in the loop.",
        ),
    ),
    hints=(
        "What top, weight and total say is relative to the old maximum. When a tile "
        "brings a higher one, how is something relative to the old made relative to "
        "the new?",
        "exp(s - old) becomes exp(s - new) by a factor of exp(old - new), whatever s "
        "is. So weight and total are multiplied by it, before the tile is added.",
        "higher = torch.maximum(top, scores.amax(dim=-1, keepdim=True)); mend = "
        "torch.exp(top - higher); weights = torch.exp(scores - higher); weight = "
        "weight * mend + weights.sum(dim=-1, keepdim=True); likewise total with "
        "weights @ values; top = higher.",
    ),
    onward="Which tile size is fastest here, and which takes the least memory?",
    structure=(_BY_HAND,),
    prelude=_TILED,
)
