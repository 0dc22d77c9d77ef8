"""One step of training: what comes next, its loss, its gradient, AdamW."""

from __future__ import annotations

import torch

from autograder.drawing import tensor
from autograder.exercise import Arguments, Case, Exercise, Output, Outputs, Problem
from autograder.exercises.transformer.wide import PRELUDE, near, normal


def step_case(
    batch: int,
    length: int,
    vocabulary: int,
    d: int,
    step: int,
    regime: str = "distinct",
) -> Case:
    """Return a case of one shape, named as the learner reads it."""
    sizes = {"batch": batch, "length": length, "vocabulary": vocabulary}
    sizes |= {"d": d, "step": step}
    of = {"distinct": "", "padded": ", some padded", "steep": ", a steep loss"}[regime]
    return Case(f"{batch} x {length} tokens, step {step}{of}", sizes, regime)


def _problem(case: Case, generator: torch.Generator) -> Problem:
    batch, length, vocabulary, d, step = case.sizes.values()
    shape = 2, vocabulary, d
    tokens = torch.randint(vocabulary, (batch, length + 1), generator=generator)
    if case.regime == "padded":  # the end of a text that is shorter
        tokens[-1, length // 2 + 1 :] = -1
    begun = float(step > 1)
    second = normal(generator, *shape).square()
    return Problem(
        {
            "weights": normal(
                generator, *shape, scale=6 if case.regime == "steep" else 0.7
            ),
            "m": begun * normal(generator, *shape, scale=0.01),
            "v": begun * second * 1e-4,
            "tokens": tokens,
            "step": step,
            "lr": 0.01,
        },
        {
            "loss": Output((), torch.float64),
            "weights": Output(shape, torch.float64),
            "m": Output(shape, torch.float64),
            "v": Output(shape, torch.float64),
        },
    )


def _reference(arguments: Arguments) -> Outputs:
    weights, m, v = (tensor(arguments, name) for name in ("weights", "m", "v"))
    step, lr = arguments["step"], arguments["lr"]
    assert isinstance(step, int) and isinstance(lr, float)
    tokens = tensor(arguments, "tokens")
    given, wanted = tokens[:, :-1].flatten(), tokens[:, 1:].flatten()
    counts = wanted >= 0
    given, wanted = given[counts], wanted[counts]
    hidden = torch.tanh(weights[0, given])
    logs = (hidden @ weights[1].T).log_softmax(1)
    # By hand: the gradient of cross entropy is softmax less one at the target.
    slope = logs.exp()
    slope[torch.arange(len(wanted)), wanted] -= 1
    slope /= len(wanted)
    grad = torch.zeros_like(weights)
    grad[1] = slope.T @ hidden
    grad[0].index_add_(0, given, (slope @ weights[1]) * (1 - hidden**2))
    grad /= max(1.0, float(grad.square().sum().sqrt()))
    m, v = 0.9 * m + 0.1 * grad, 0.95 * v + 0.05 * grad**2
    root = (v / (1 - 0.95**step)).sqrt() + 1e-8
    moved = weights * (1 - 0.1 * lr) - lr * m / (1 - 0.9**step) / root
    loss = -logs[torch.arange(len(wanted)), wanted].mean()
    return {"loss": loss, "weights": moved, "m": m, "v": v}


TRAIN_STEP = Exercise(
    id="train_step",
    title="From a batch to new weights",
    kind="core",
    points=20,
    language="python",
    entry="function",
    name="train_step",
    source="solutions/transformer/adamw.py",
    goal="Learn from one batch: targets, loss, gradient, clipping, AdamW.",
    requirements=(
        "`tokens` is (batch, length + 1), int64: each token is given to predict the "
        "next one. A target of -1 is padding and counts for nothing; padding stands "
        "at a text's end.",
        "The loss is the mean cross entropy, in nats, over the targets that count.",
        "The gradient of both matrices together is scaled down to norm 1 where its "
        "norm is greater: by the norm itself (torch's `clip_grad_norm_` adds 1e-6).",
        "AdamW with betas 0.9 and 0.95, eps 1e-8, both moments corrected for their "
        "start (`step` counts from 1), and a weight decay of 0.1, decoupled.",
        "Returned are the loss (a tensor without dimensions or gradient), weights, m "
        "and v, all new: the arguments stay as they are.",
    ),
    problem=_problem,
    reference=_reference,
    cases=(
        step_case(3, 8, 30, 6, 4),
        step_case(4, 6, 20, 5, 1, "steep"),
        step_case(2, 9, 25, 4, 7, "padded"),
        step_case(3, 5, 12, 8, 1000, "steep"),
        step_case(1, 2, 5, 2, 2),
    ),
    tolerance=near(_reference),
    hints=(
        "tokens[:, :-1] is given, tokens[:, 1:] is wanted. Let autograd make the "
        "gradient: of what must requires_grad be true, and must the caller see that?",
        "F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=-1) is "
        "the loss; an index of -1 would pick the last row, so given.clamp(min=0). One "
        "norm over both matrices: grad.norm().",
        "m = 0.9 m + 0.1 g; v = 0.95 v + 0.05 g²; m / (1 - 0.9**step), v / (1 - "
        "0.95**step); weights - lr * (m̂ / (v̂.sqrt() + 1e-8) + 0.1 * weights), the old "
        "weights on the right.",
    ),
    onward="Train with these lines for 300 steps on a page of text. What does the loss "
    "do with `step` held at 1?",
    repeats=("tokens", "m", "v"),
    prelude=PRELUDE
    + "from autograder.worker.adapters.training import adapt_update as __adapt__\n",
    shares={"correct": 1.0, "counts": 0.0, "speed": 0.0},
)
