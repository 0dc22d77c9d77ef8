"""Train a model on a long row of tokens, in one process or several."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.distributed as dist

from solutions.transformer.graphs import chosen
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
    graph: bool | None = None,
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
        graph: whether to replay the step as one CUDA graph; wherever one can be
            captured, when absent.

    Returns:
        The mean cross entropy of each step's batch, in nats a token.

    Raises:
        ValueError: a text shorter than a piece, a batch that cannot be shared, or a
            graph of what cannot be captured.

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
    graph = _chosen(graph, model, size)
    optimizer = make_optimizer(model, lr, weight_decay, graph)
    learn: Callable[[torch.Tensor], torch.Tensor] = (
        Step(model, optimizer, clip)
        if graph
        else partial(train_step, model, optimizer, clip=clip, group=group)
    )
    drawn = torch.Generator().manual_seed(seed)
    own = slice(rank * batch // size, (rank + 1) * batch // size)
    losses = []
    model.train()
    for step in range(steps):
        starts = torch.randint(len(tokens) - length - 1, (batch,), generator=drawn)
        pieces = torch.stack([tokens[s : s + length + 1] for s in starts[own].tolist()])
        set_rate(optimizer, rate(step, steps, lr))
        losses.append(float(learn(pieces.to(model.device))))
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


class Step:
    """``train_step`` as a CUDA graph: hundreds of kernels, one launch.

    The first steps run as they are, for a kernel is compiled when it is first launched.
    Then the step is captured, and from there on replayed: over one batch's memory, into
    gradients that stay where they are.

    Args:
        model: what learns.
        optimizer: as ``make_optimizer`` makes it for a graph.
        clip: the gradient's norm at most.
    """

    WARM_UPS = 3

    def __init__(
        self, model: Model, optimizer: torch.optim.Optimizer, clip: float = 1.0
    ) -> None:
        self._step = partial(train_step, model, optimizer, clip=clip)
        self._stream = torch.cuda.Stream()
        self._graph: torch.cuda.CUDAGraph | None = None
        self._ran = 0

    def __call__(self, pieces: torch.Tensor) -> torch.Tensor:
        """Learn from one batch, of the first one's shape; return its loss.

        The loss of a graph is overwritten by the next step's.
        """
        if self._ran < self.WARM_UPS:
            self._ran += 1
            return self._beside(pieces)
        if self._graph is None:
            self._pieces = pieces.clone()
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph, stream=self._stream):
                self._loss = self._step(self._pieces)
        self._pieces.copy_(pieces)
        self._graph.replay()
        return self._loss

    def _beside(self, pieces: torch.Tensor) -> torch.Tensor:
        """Run a step as it is, on the stream on which the graph will be captured."""
        now = torch.cuda.current_stream()
        self._stream.wait_stream(now)
        with torch.cuda.stream(self._stream):
            loss = self._step(pieces)
        now.wait_stream(self._stream)
        return loss


def _chosen(graph: bool | None, model: Model, processes: int) -> bool:
    """Say whether a step is captured: nothing of it may be asked by the host."""
    hindrances = {
        "the model is on the CPU": model.device.type != "cuda",
        "which experts get how many tokens is asked by the host": model.config.experts,
        "several processes average their gradients": processes > 1,
    }
    return chosen("train", graph, hindrances)


def average(
    model: Model, loss: torch.Tensor, size: int, group: dist.ProcessGroup | None
) -> None:
    """Replace gradients and the loss by their mean over all processes."""
    whole = [loss, *(p.grad for p in model.parameters() if p.grad is not None)]
    for tensor in whole:
        dist.all_reduce(tensor, group=group)
        tensor /= size


def make_optimizer(
    model: Model, lr: float, weight_decay: float = 0.1, graph: bool = False
) -> torch.optim.Optimizer:
    """Return AdamW, which lets matrices decay and norms not; one kernel a step.

    For a graph its rate is a number on the GPU: a float would be captured as it is.
    """
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        groups, lr=torch.tensor(lr, device=model.device) if graph else lr,
        betas=(0.9, 0.95), fused=True, capturable=graph,
    )  # fmt: skip


def set_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Let the next step learn at a rate."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(lr)
        else:
            group["lr"] = lr


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
