"""What a function does inside of a region of ``torch.autocast``."""

from __future__ import annotations

from typing import Any

import torch


def autocast(*tensors: Any) -> tuple[Any, ...]:
    """Cast to autocast's dtype inside of a region, as torch's products do.

    Args:
        tensors: what is no tensor of fp16, bf16 or fp32 is left as it is, and all if
            the first is on neither a CPU nor an NVIDIA GPU.
    """
    first = tensors[0]
    device = first.device.type if isinstance(first, torch.Tensor) else "meta"
    if device not in ("cpu", "cuda") or not torch.is_autocast_enabled(device):
        return tensors
    dtype = torch.get_autocast_dtype(device)
    return tuple(t.to(dtype) if _narrow(t) else t for t in tensors)


def _narrow(tensor: Any) -> bool:
    """Say whether autocast casts it: whole and double numbers it leaves alone."""
    return (
        isinstance(tensor, torch.Tensor)
        and tensor.is_floating_point()
        and tensor.dtype != torch.float64
    )
