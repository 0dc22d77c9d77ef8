"""What the chapter's exercises share: how cases are drawn, and what is not allowed."""

from __future__ import annotations

import torch

from autograder.drawing import tensor
from autograder.exercise import (
    Arguments,
    Case,
    Outputs,
    Structure,
    Tolerance,
)

PRELUDE = "import torch\nimport torch.distributed as dist\n"
LEFT_ALONE = (
    "from autograder.worker.adapters.unchanged import adapt_unchanged as __adapt__\n"
)

MESSAGES_ALONE = Structure(
    runs_no=(
        *("allreduce", "c10d.reduce", "reduce_scatter", "allgather", "c10d.gather"),
        *("c10d.scatter", "c10d.broadcast", "alltoall"),
    ),
    message="The group's own collective did the exercise: use messages alone, "
    "dist.isend, dist.irecv, dist.send and dist.recv.",
)


def ranks_case(ranks: int, n: int, pieces: int = 1) -> Case:
    """Return a case for some ranks, with n elements each."""
    of = "rank" if ranks == 1 else "ranks"
    name = f"{ranks} {of}, n = {n:,}"
    if pieces > 1:
        name += f", {pieces} pieces"
    return Case(name, {"ranks": ranks, "n": n, "pieces": pieces})


def draw(case: Case, generator: torch.Generator, *shape: int) -> torch.Tensor:
    """Draw every rank's values, which differ from each other."""
    return torch.randn(case.sizes["ranks"], *shape, generator=generator)


def magnitudes(arguments: Arguments) -> torch.Tensor:
    """Return the sum of magnitudes that each rank's sum is rounded relative to."""
    return tensor(arguments, "x").double().abs().sum(0)


def _to_all(arguments: Arguments) -> Outputs:
    return {"out": magnitudes(arguments).expand(tensor(arguments, "x").shape)}


# n - 1 additions in any order, each off by eps/2 of a sum no larger than that of the
# magnitudes: (n - 1) / 2 is below sqrt(n) for up to 5 ranks.
SUMS = Tolerance(1.0, length=lambda case: case.sizes["ranks"], scale=_to_all)
# What is passed on is not rounded.
EXACT = Tolerance(factor=0.0)
