"""A model's tensors by name around a learner's ``compress_model``."""

from __future__ import annotations

from typing import Any

import torch

from autograder.worker.entry import WrongReturn

_SHARED = "layers.1.joined.weight"
_OUTSIDE = "embedding.weight", "layers_in.weight", "head.layers.weight"


def adapt_compress(
    answer: Any,
    first: torch.Tensor,
    second: torch.Tensor,
    norm: torch.Tensor,
    embedding: torch.Tensor,
    group_size: int,
) -> tuple[torch.Tensor, ...]:
    """Have a state_dict compressed; return the packed matrices and their scales."""
    state = {
        "embedding.weight": embedding,
        "layers.0.norm.weight": norm,
        "layers.0.joined.weight": first,
        "layers.0.out.weight": second,
        # One tensor under two names, as where layers are shared.
        _SHARED: first,
        "layers.1.out.weight": second.flip(0),
        # In none of the layers.
        "layers_in.weight": embedding,
        "head.layers.weight": embedding,
    }
    given = dict(state)
    before = {name: tensor.clone() for name, tensor in state.items()}
    small = answer(given, group_size)
    if not isinstance(small, dict) or set(small) != set(state):
        names = ", ".join(sorted(small)) if isinstance(small, dict) else small
        raise WrongReturn(
            f"compress_model returned {names}; wanted a dict of the names it was given."
        )
    for name in (*_OUTSIDE, "layers.0.norm.weight"):
        if small[name] is not state[name]:
            raise WrongReturn(
                f"{name} came back as something else; wanted the tensor itself: "
                "embedding, head and norms stay as they are, without a copy; layers' "
                "names begin with `layers.`."
            )
    for name, tensor in before.items():
        if given.get(name) is not state[name] or not torch.equal(tensor, state[name]):
            raise WrongReturn(
                f"{name} was changed in what the caller gave; wanted the model left as "
                "it was, and a dict of its own."
            )
    for name in state.keys() - {*_OUTSIDE, "layers.0.norm.weight"}:
        pair = small[name]
        if not (isinstance(pair, tuple | list) and len(pair) == 2):
            raise WrongReturn(
                f"{name} came back as {type(pair).__name__}; wanted (packed, scales)."
            )
    if small[_SHARED][0] is not small["layers.0.joined.weight"][0]:
        raise WrongReturn(
            f"{_SHARED} is layers.0.joined.weight, one tensor under two names, and was "
            "packed twice: that is memory for nothing. Keep what was packed by "
            "tensor.data_ptr()."
        )
    pairs = zip(small["layers.0.out.weight"], small["layers.1.out.weight"], strict=True)
    if not all(torch.equal(one.flip(0), other) for one, other in pairs):
        raise WrongReturn(
            "layers.1.out.weight has the rows of layers.0.out.weight in reverse order, "
            "and its packed rows or scales are not the other's in reverse order: each "
            "matrix is packed from its own numbers."
        )
    made = (*small["layers.0.joined.weight"], *small["layers.0.out.weight"])
    return tuple(made)
