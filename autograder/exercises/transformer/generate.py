"""Generation with a cache: a model that counts which positions it is asked for.

Tokens are whole numbers. The logits behind them are float64, and a draw in which two of
them come within rounding of each other is not met in practice: it would take one of
some 10^13.
"""

from __future__ import annotations

import torch

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
    Count,
    Exercise,
    Output,
    Outputs,
    Problem,
    Tolerance,
    Value,
)
from autograder.exercises.transformer.wide import PRELUDE, normal
from autograder.worker.adapters.decoding import CALLS, COUNT, CountingModel

D, VOCABULARY = 8, 50


def prompt_case(length: int, new: int, regime: str = "greedy") -> Case:
    """Return a case of one length, named as the learner reads it."""
    of = {"greedy": "greedy", "drawn": "temperature 2.5", "cool": "temperature 0.4"}
    words = of | {
        "ended": "greedy, with an end",
        "again": "greedy, with an end that the prompt has, too",
    }
    name = f"{new} tokens after {length}, {words[regime]}"
    return Case(name, {"length": length, "new": new}, regime)


def _problem(case: Case, generator: torch.Generator) -> Problem:
    length, new = case.sizes["length"], case.sizes["new"]
    uniform = torch.rand(new, VOCABULARY, generator=generator, dtype=torch.float64)
    prompt = torch.randint(VOCABULARY, (length,), generator=generator)
    temperature = {"drawn": 2.5, "cool": 0.4}.get(case.regime, 0.0)
    given: dict[str, Value | None] = {
        "embedding": normal(generator, VOCABULARY, D, scale=1.0),
        "joined": normal(generator, 3, D, D, scale=1.2),
        "head": normal(generator, VOCABULARY, D, scale=1.5),
        "prompt": prompt,
        "noise": -(-uniform.log()).log(),
        "temperature": temperature,
        "end": -1,
    }
    if case.regime == "ended":
        tokens = _tokens(given)  # type: ignore[arg-type]
        given["end"] = int(tokens[new // 2])
    if case.regime == "again":
        given["end"] = int(prompt[length // 2])
    return Problem(given, {"tokens": Output((new,), torch.int64)})


def _tokens(arguments: Arguments) -> torch.Tensor:
    """Compute every position again for each token: right, and wasteful."""
    names = ("embedding", "joined", "head")
    model = CountingModel(*(tensor(arguments, name) for name in names))
    text, noise = tensor(arguments, "prompt"), tensor(arguments, "noise")
    temperature, end = arguments["temperature"], arguments["end"]
    assert isinstance(temperature, float)
    length = len(text)
    for row in noise:
        places = torch.arange(len(text))
        logits = model(text, places, model.new_cache(len(text)))[-1]
        if temperature > 0:
            logits = logits / temperature + row
        token = logits.argmax()
        if length < len(text) and text[-1] == end:
            token = text[-1]
        text = torch.cat((text, token[None]))
    return text[length:]


def _reference(arguments: Arguments) -> Outputs:
    return {"tokens": _tokens(arguments)}


_FIRST = prompt_case(12, 20)

GENERATE = Exercise(
    id="generate",
    title="One position a token",
    kind="core",
    points=20,
    language="python",
    entry="function",
    name="generate",
    source="solutions/transformer/continuation.py",
    goal="Continue a prompt, and let the model compute each position once.",
    requirements=(
        "`prompt` is (length), int64, with a token at least; `noise` (new, "
        "vocabulary). Returned are the new tokens alone, int64 (new).",
        "`cache = model.new_cache(max_len)` makes an empty cache; a position is a "
        "token's place in the text, from 0. A call attends to what is in the cache at "
        "its positions and before.",
        "With temperature 0 the likeliest token is taken; else the one with the "
        "largest `logits / temperature + noise[i]`, i counting new tokens.",
        "After the token `end` nothing more is computed: the rest of the result is "
        "`end`. An `end` in the prompt has no meaning.",
        "The model computes length + new - 1 positions, if no `end` comes: the prompt "
        "in one call, and nobody asks for what follows the last token.",
    ),
    problem=_problem,
    reference=_reference,
    cases=(
        _FIRST,
        prompt_case(5, 24, "drawn"),
        prompt_case(7, 16, "ended"),
        prompt_case(3, 24, "cool"),
        prompt_case(1, 9),
        prompt_case(6, 9, "again"),
        prompt_case(40, 1, "drawn"),
    ),
    tolerance=Tolerance(factor=0.0),
    counts=(
        Count(COUNT, ideal=_FIRST.sizes["length"] + _FIRST.sizes["new"] - 1, times=1.0),
        Count(CALLS, ideal=_FIRST.sizes["new"], times=1.0),
    ),
    hints=(
        "Two phases: the first call takes the whole prompt, each further one the token "
        "that was just chosen. In both only the last row of the logits is needed.",
        "Keep how many positions are computed. The prompt's are torch.arange(length); "
        "the first new token's is length. Choose first, call afterwards, and only if "
        "another token is wanted.",
        "A loop over range(new): logits = model(tokens, positions, cache)[-1]; choose; "
        "store; stop at end; tokens = the one chosen. Begin with the result full of "
        "end: torch.full((new,), end).",
    ),
    onward="Let a second, cheaper model guess four tokens, and check them in one call.",
    repeats=("prompt",),
    prelude=PRELUDE
    + "from autograder.worker.adapters.decoding import adapt_generate as __adapt__\n",
    shares={"correct": 0.75, "counts": 0.25, "speed": 0.0},
)
