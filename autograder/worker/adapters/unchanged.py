"""What a caller finds afterwards in the tensors that an answer was given."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from autograder.worker.entry import WrongReturn
from autograder.worker.operations import unseen


def adapt_unchanged(answer: Any, *given: Any) -> Any:
    """Call an answer that is to leave its arguments as they are.

    Raises:
        WrongReturn: it wrote into one.
    """
    before = [one.clone() if isinstance(one, torch.Tensor) else one for one in given]
    found = answer(*given)
    with unseen():
        names = inspect.signature(answer).parameters
        for name, was, one in zip(names, before, given, strict=False):
            if isinstance(one, torch.Tensor) and not torch.equal(was, one):
                raise WrongReturn(
                    f"the caller's {name} was changed; wanted it left as it was: work "
                    "on a copy, or on new tensors."
                )
    return found
