"""Four bits for a trained model's matrices, and what that costs in perplexity."""

from __future__ import annotations

import copy
import math

import torch
from torch import nn

from solutions.int4 import Int4Linear, pack, quantize
from solutions.transformer.layer import GatedMLP, Int4MLP
from solutions.transformer.model import Model


def compress(
    model: Model, group_size: int = 128, *, head: bool = False, symmetric: bool = False
) -> Model:
    """Return a copy of a model with the layers' matrices in four bits.

    The embedding, the norms and experts stay as they are, and so does the head unless
    it is asked for: its logits decide between tokens that are nearly equal.

    Args:
        model: on the CPU or a GPU, where the copy will be.
        group_size: columns that share a scale.
        head: whether to compress the last product too.
        symmetric: as for ``solutions.int4.quantize``.

    Returns:
        A model that generates, and is not trained.

    Cost: each matrix read and rounded once; half a byte and 5 / group_size bytes a
    number remain.
    """
    if isinstance(model.layers[0].attention.out, Int4Linear):
        raise ValueError("compress: the model is compressed already.")
    # Its matrices are not copied first: the largest model is one that just fits.
    shared = {id(p): p for p in model.parameters()}
    small = copy.deepcopy(model, shared)
    how = group_size, symmetric
    for layer in small.layers:
        attention = layer.attention
        attention.joined = Int4Linear.from_linear(attention.joined, *how)
        attention.out = Int4Linear.from_linear(attention.out, *how)
        if isinstance(layer.mlp, GatedMLP):
            both = torch.cat((layer.mlp.gate.weight, layer.mlp.up.weight))
            layer.mlp = Int4MLP(
                Int4Linear(pack(quantize(both, *how))),
                Int4Linear.from_linear(layer.mlp.down, *how),
            )
    if head:
        small.head = Int4Linear.from_linear(small.head, *how)
    return small.eval()


def weight_bytes(model: nn.Module) -> int:
    """Return the bytes of a model's parameters and buffers."""
    kept = [*model.parameters(), *model.buffers()]
    return sum(tensor.nbytes for tensor in kept)


@torch.no_grad()
def perplexity(
    model: Model, tokens: torch.Tensor, length: int = 128, batch: int = 8
) -> float:
    """Return e to the mean cross entropy over a text, cut into pieces.

    Args:
        model: trained or compressed.
        tokens: int64 (n), more than length.
        length: tokens that a piece predicts.
        batch: pieces at a time.
    """
    pieces = (len(tokens) - 1) // length
    if pieces < 1:
        raise ValueError(
            f"perplexity: {len(tokens)} tokens; wanted more than length, {length}."
        )
    inputs = tokens[: pieces * length].view(pieces, length)
    targets = tokens[1 : pieces * length + 1].view(pieces, length)
    total = 0.0
    for first in range(0, pieces, batch):
        part = slice(first, first + batch)
        given = inputs[part].to(model.device), targets[part].to(model.device)
        total += float(model.loss(*given)) * len(given[0])
    return math.exp(total / pieces)
