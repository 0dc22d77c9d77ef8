"""Speculative decoding: a cheap model guesses, the model checks all guesses at once."""

from __future__ import annotations

from typing import NamedTuple

import torch

from solutions.transformer.generation import _check
from solutions.transformer.model import Model


class Speculated(NamedTuple):
    """What came of it.

    Attributes:
        tokens: int64 (1, length + new), the model's own greedy tokens.
        passes: how often the model itself ran.
        accepted: guesses that were right.
    """

    tokens: torch.Tensor
    passes: int
    accepted: int


@torch.inference_mode()
def generate_speculative(
    model: Model, draft: Model, prompt: torch.Tensor, new: int, guesses: int = 4
) -> Speculated:
    """Continue a prompt as ``generate`` would, with fewer passes of the model.

    The draft guesses some tokens, one a pass. One pass of the model over all of them
    reads its weights once, and says of each whether it would have taken it. The first
    that it would not is replaced, and what follows is forgotten.

    Args:
        model: whose tokens are wanted.
        draft: a cheaper one of the same vocabulary, such as ``compress(model)``.
        prompt: int64 (1, length).
        new: tokens to add.
        guesses: at a time, 15 at most.

    Returns:
        The tokens, with counts.

    Raises:
        ValueError: more than one sequence: each would accept another number.

    Source: Leviathan and others, Fast Inference from Transformers via Speculative
    Decoding (2023), section 2; greedy, so what is compared are tokens.
    """
    batch, length = _check(model, prompt, new)
    if batch != 1 or not 1 <= guesses <= 15:
        raise ValueError(
            f"generate_speculative: {batch} sequences and {guesses} guesses; wanted "
            "one sequence, and 1 to 15."
        )
    # The last round may guess past the end.
    room = min(length + new + guesses, model.config.max_len)
    mine, its = model.new_cache(1, room), draft.new_cache(1, room)
    tokens = prompt[0].tolist()
    passes = accepted = 0
    goal = length + new
    while len(tokens) < goal:
        count = min(guesses, goal - len(tokens) - 1)
        guessed = _guess(draft, its, tokens, count)
        # All that the model has not yet seen; at first that is the prompt.
        unseen = tokens[mine.length :] + guessed
        given = torch.tensor([unseen], device=prompt.device)
        logits = model(given, mine)[0, -1 - len(guessed) :]
        wanted = logits.argmax(-1).tolist()
        passes += 1
        right = 0
        while right < len(guessed) and guessed[right] == wanted[right]:
            right += 1
        accepted += right
        tokens += wanted[: right + 1]
        # Keys of guesses that were wrong are overwritten.
        mine.advance(min(0, len(tokens) - 1 - mine.length))
        its.advance(min(0, len(tokens) - 1 - its.length))
    made = torch.tensor([tokens[:goal]], device=prompt.device)
    return Speculated(made, passes, accepted)


def _guess(draft: Model, cache, tokens: list[int], count: int) -> list[int]:
    """Let the draft continue, token by token."""
    guessed: list[int] = []
    for _ in range(count):
        unseen = (tokens + guessed)[cache.length :]
        given = torch.tensor([unseen], device=draft.device)
        guessed.append(int(draft(given, cache)[0, -1].argmax()))
    return guessed
