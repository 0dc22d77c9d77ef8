"""What several exercises of the chapter draw on."""

from __future__ import annotations

from itertools import pairwise

import torch

from autograder.exercise import Arguments, Case, Output, Outputs, Problem
from autograder.worker.adapters.averaging import loss_of, parameters_of

PRELUDE = "import torch\nimport torch.distributed as dist\n"
SHARES = {"correct": 0.7, "counts": 0.3, "speed": 0.0}


def training_case(
    ranks: int, widths: tuple[int, ...], limit: int, steps: int = 2
) -> Case:
    """Return a case of one network, named as the learner reads it."""
    sizes = {"ranks": ranks, "limit": limit, "steps": steps}
    sizes |= {f"width {at}": width for at, width in enumerate(widths)}
    layers = " to ".join(map(str, widths))
    return Case(f"{ranks} ranks, {layers}, buckets of {limit:,} bytes", sizes)


def draw_training(case: Case, generator: torch.Generator) -> Problem:
    """Draw a network and each rank's batches."""
    widths = [n for name, n in case.sizes.items() if name.startswith("width")]
    ranks, steps = case.sizes["ranks"], case.sizes["steps"]
    numbers = sum((a + 1) * b for a, b in pairwise(widths))
    flat = 0.4 * torch.randn(numbers, generator=generator)
    return Problem(
        {
            "x": torch.randn(ranks, steps, 3, widths[0], generator=generator),
            "flat": flat,
            "widths": torch.tensor(widths),
            "limit": case.sizes["limit"],
        },
        {"grads": Output((ranks, steps, numbers), torch.float32)},
        ranks=ranks,
        replicated=("flat", "widths"),
    )


def averaged(arguments: Arguments) -> Outputs:
    """Return each step's gradients, averaged over the ranks, for each rank."""
    x, flat, widths = (arguments[name] for name in ("x", "flat", "widths"))
    assert isinstance(x, torch.Tensor) and isinstance(flat, torch.Tensor)
    assert isinstance(widths, torch.Tensor)
    steps = []
    for step in range(x.shape[1]):
        whole = flat.double().requires_grad_()
        parameters = parameters_of(whole, widths.tolist())
        loss = sum((loss_of(parameters, one[step].double()) for one in x), start=0)
        assert isinstance(loss, torch.Tensor)
        steps.append(torch.autograd.grad(loss / len(x), whole)[0])
    return {"grads": torch.stack(steps).expand(len(x), -1, -1)}


def largest(outputs: Outputs) -> Outputs:
    """Return for each output its largest magnitude: what a sum's rounding is beside."""
    return {
        name: values.abs().amax().expand(values.shape) if values.numel() else values
        for name, values in outputs.items()
    }


def reduced_bytes(ranks: int, numbers: int) -> int:
    """Return what each rank sends of an all-reduce of floats: 2 (n - 1) / n of it."""
    return -(-2 * (ranks - 1) * 4 * numbers // ranks)
