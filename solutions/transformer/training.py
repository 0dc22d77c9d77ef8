"""Train a model on a long row of tokens, in one process or several."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.distributed as dist

from solutions.transformer.model import Model

Told = Callable[[int, float], None]


def train(
    model: Model,
    tokens: torch.Tensor,
    *,
    steps: int,
    batch: int = 8,
    length: int = 128,
    lr: float = 3e-3,
    weight_decay: float = 0.1,
    clip: float = 1.0,
    seed: int = 0,
    told: Told | None = None,
    group: dist.ProcessGroup | None = None,
) -> list[float]:
    """Train by AdamW on pieces of a text, and return each step's loss.

    Where torch.distributed runs, each process takes its share of every batch, and
    gradients are averaged: n processes draw the pieces that one would, and learn the
    same. The model must be the same in each.

    Args:
        model: is trained where it is.
        tokens: int64 (n), on any device.
        steps: how many.
        batch: pieces a step, of all processes together.
        length: tokens of a piece.
        lr: after the warm-up; falls to a tenth along a cosine.
        weight_decay: of matrices; norms have none.
        clip: the gradient's norm at most.
        seed: pieces are drawn from it.
        told: is called with each step's number and loss.
        group: processes; all of them when absent.

    Returns:
        The mean cross entropy of each step's batch, in nats a token.

    Raises:
        ValueError: a text shorter than a piece, or a batch that cannot be shared.

    Source: Loshchilov and Hutter, Decoupled Weight Decay Regularization (2019).
    """
    rank, size = _place(group)
    if len(tokens) < length + 2:
        raise ValueError(
            f"train: the text has {len(tokens)} tokens; wanted more than length + 1, "
            f"{length + 1}."
        )
    if batch % size:
        raise ValueError(
            f"train: a batch of {batch} for {size} processes; wanted a multiple."
        )
    # The first process's parameters for all: each has drawn its own.
    if size > 1:
        for parameter in model.parameters():
            dist.broadcast(parameter.data, 0, group=group)
    optimizer = make_optimizer(model, lr, weight_decay)
    drawn = torch.Generator().manual_seed(seed)
    own = slice(rank * batch // size, (rank + 1) * batch // size)
    losses = []
    model.train()
    for step in range(steps):
        starts = torch.randint(len(tokens) - length - 1, (batch,), generator=drawn)
        pieces = torch.stack([tokens[s : s + length + 1] for s in starts[own].tolist()])
        for group_of in optimizer.param_groups:
            group_of["lr"] = rate(step, steps, lr)
        loss = train_step(model, optimizer, pieces.to(model.device), clip, group)
        losses.append(float(loss))
        if told is not None:
            told(step, losses[-1])
    return losses


def train_step(
    model: Model,
    optimizer: torch.optim.Optimizer,
    pieces: torch.Tensor,
    clip: float = 1.0,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """Learn from one batch, (pieces, length + 1); return its loss."""
    optimizer.zero_grad(set_to_none=True)
    loss = model.loss(pieces[:, :-1], pieces[:, 1:])
    loss.backward()
    loss = loss.detach()
    _, size = _place(group)
    if size > 1:
        average(model, loss, size, group)
    torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    return loss


def average(
    model: Model, loss: torch.Tensor, size: int, group: dist.ProcessGroup | None
) -> None:
    """Replace gradients and the loss by their mean over all processes."""
    whole = [loss, *(p.grad for p in model.parameters() if p.grad is not None)]
    for tensor in whole:
        dist.all_reduce(tensor, group=group)
        tensor /= size


def make_optimizer(
    model: Model, lr: float, weight_decay: float = 0.1
) -> torch.optim.Optimizer:
    """Return AdamW, which lets matrices decay and norms not; one kernel a step."""
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), fused=True)


def rate(step: int, steps: int, lr: float) -> float:
    """Return a step's learning rate: a tenth of the steps up, then down a cosine."""
    warm_up = max(1, steps // 10)
    if step < warm_up:
        return lr * (step + 1) / warm_up
    done = (step - warm_up) / max(1, steps - warm_up)
    return lr * (0.1 + 0.45 * (1 + math.cos(math.pi * done)))


def _place(group: dist.ProcessGroup | None) -> tuple[int, int]:
    if not (dist.is_available() and dist.is_initialized()):
        return 0, 1
    return dist.get_rank(group), dist.get_world_size(group)
