"""The pieces of a cache, put together by their log-sum-exp."""

from __future__ import annotations

from autograder.exercise import Exercise, Tolerance
from autograder.exercises.flash_attention_triton.cache import (
    FIRST,
    SHORT,
    SPLITS,
    decode_case,
    decode_problem,
    decoded,
)
from autograder.exercises.flash_attention_triton.shared import (
    FACTOR,
    PRELUDE,
    made_in_triton,
)
from autograder.ideals import moves

DECODE_SPLIT_KV = Exercise(
    id="decode_split_kv",
    title="The pieces put together",
    kind="core",
    points=10,
    language="python",
    entry="function",
    name="decode_split_kv",
    source="solutions/flash_attention_triton/split.py",
    goal="Put the pieces' outputs together by their log-sum-exp.",
    requirements=(
        "The whole is the pieces' outputs weighed by exp(lse), normalised.",
        "No exponential overflows, and not all vanish, however high or low lse is; an "
        "empty piece, whose lse is -inf, weighs nothing.",
    ),
    problem=decode_problem,
    reference=decoded,
    cases=(
        *FIRST,
        # Logits whose exponentials overflow.
        decode_case(90, 32, 3, 1, "large"),
        # And such as all vanish beside one that is no piece's.
        decode_case(90, 32, 3, 1, "low"),
        SHORT,
    ),
    tolerance=Tolerance(factor=FACTOR, scale=lambda a: decoded(a, absolute=True)),
    hints=(
        "Each piece is a softmax over its own keys, right but for its normalisation. "
        "exp(lse) is what it was divided by.",
        "The weights are exp(lse - max of lse): the largest is 1, none overflows, and "
        "what they are relative to divides out.",
        "weight = tl.exp(lse - tl.max(lse, 0)); out = tl.sum(part * weight[:, None], "
        "0) / tl.sum(weight, 0).",
    ),
    onward="Let the program that finishes last combine the pieces: what is saved?",
    counts=(
        # And 4% for what the pieces hand over.
        moves({"q": SPLITS, "lengths": 2 * SPLITS}, writes=None, times=1.09)
    ),
    structure=(
        made_in_triton(
            "tl.load",
            "tl.store",
            message="The values are right, and it is not your Triton kernel alone that "
            "made them: the weights and the sum over pieces belong into it.",
        ),
    ),
    needs=("absorb_tile", "decode_pieces"),
    prelude=PRELUDE,
)
