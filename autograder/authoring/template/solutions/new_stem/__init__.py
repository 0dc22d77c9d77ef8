"""New title.

    new_stem(x)[i] = x[i] * x[i]     8 bytes and 1 FLOP an element

To write: what bounds it, the rungs in their order, and when not to use it.

    naive.cu     one thread an element
"""

from __future__ import annotations

from pathlib import Path

import torch

import kernelwright as kw
from kernelwright.operators import operator, recorded

__all__ = ["new_stem"]

_kernel = kw.cuda.kernels(Path(__file__).parent)
_THREADS = 256


@recorded
def new_stem(x: torch.Tensor) -> torch.Tensor:
    """Square every element: ``out[i] = x[i] * x[i]``.

    Args:
        x: any shape, contiguous, fp32, on the CPU (emulator) or a GPU.

    Returns:
        A new tensor of x's shape and device.

    Raises:
        ValueError: another dtype, or a tensor that is not contiguous.

    Cost: 8 * n bytes, n FLOPs.
    """
    if x.dtype != torch.float32 or not x.is_contiguous():
        raise ValueError(
            f"new_stem: x is {x.dtype} with strides {x.stride()}; "
            "wanted contiguous float32: x.float().contiguous()."
        )
    result: torch.Tensor = _new_stem(x)
    return result


@operator("new_stem")
def _new_stem(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    if n:
        kernel = _kernel("naive", "new_stem", x.device.type)
        kernel[kw.cdiv(n, _THREADS), _THREADS](x, out, n)
    return out


_new_stem.register_fake(lambda x: torch.empty_like(x))
_new_stem.register_autograd(
    lambda ctx, grad: 2 * ctx.saved_tensors[0] * grad,
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)
