"""One step of training, from a batch of tokens to new weights."""

from __future__ import annotations

import torch
import torch.nn.functional as F


# [exercise:train_step]
def train_step(weights, m, v, tokens, step, lr):
    """Return the loss, and weights, m and v after one step of AdamW.

    weights[0] is the embedding, weights[1] the head: (2, vocabulary, d).
    A token's logits are weights[1] @ tanh(weights[0][token]).
    """
    # [hole]
    given, wanted = tokens[:, :-1], tokens[:, 1:].flatten()
    leaf = weights.detach().requires_grad_()
    logits = torch.tanh(leaf[0][given.clamp(min=0)]) @ leaf[1].T
    loss = F.cross_entropy(logits.flatten(0, 1), wanted, ignore_index=-1)
    (grad,) = torch.autograd.grad(loss, leaf)
    grad = grad * (1.0 / grad.norm()).clamp(max=1.0)
    m = 0.9 * m + 0.1 * grad
    v = 0.95 * v + 0.05 * grad**2
    first = m / (1 - 0.9**step)
    second = v / (1 - 0.95**step)
    move = first / (second.sqrt() + 1e-8)
    weights = weights - lr * (move + 0.1 * weights)
    return loss.detach(), weights, m, v
    # [/hole]


# [/exercise]
