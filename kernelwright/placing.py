"""Launching where the tensors lie: Triton takes torch's current device for its own."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch


def on_device_of(x: torch.Tensor) -> AbstractContextManager[object]:
    """Make a tensor's GPU the current one, so that Triton launches there.

    Args:
        x: any tensor; one on the CPU changes nothing, as the interpreter needs no GPU.
    """
    return torch.cuda.device(x.device) if x.is_cuda else nullcontext()
