"""Products with their epilogues: linear layers, MLPs, convolutions as products.

    linear(x, W, b)      activation(x Wᵀ + b) + residual
    mlp                  activation(x W1ᵀ + b1) W2ᵀ + b2
    gated_mlp            (silu(x Gᵀ) * (x Uᵀ)) Dᵀ
    conv2d_bias_act      activation(conv2d(x, W) + b), channels last

When a product is done its tile is in registers. What comes next, a bias, an activation,
a residual, is a few instructions there; as a kernel of its own it reads and writes the
whole result. fp16, bf16, fp32 and fp64; any shape; gradients. CPU tensors are computed
by torch, in fp32 at least.

    hopper.py              TMA, wgmma, warps with roles: a product and its epilogue
    hopper_gated.py        two products at once, one gating the other
    hopper_conv.py         a convolution whose matrix is never built
    hopper_tiles.py        what these share: the walk over tiles, barriers, the sum
    gluon_activations.py   activations of a tile in registers
    activations.py         the same ones elsewhere, and their slopes
    product.py, mlp.py, convolution.py    torch's operators: what is kept, gradients
    functions.py, modules.py              what readers import

When not to use it: for a few rows, as in decoding, where tiles of 128 rows are mostly
empty; and for a linear layer by itself, which the library multiplies as fast.
"""

from __future__ import annotations

from solutions.epilogue.functions import (
    conv2d_bias_act,
    gated_mlp,
    linear,
    linear_gelu,
    mlp,
)
from solutions.epilogue.modules import FusedConv2d, FusedLinear, FusedMLP

__all__ = [
    "FusedConv2d",
    "FusedLinear",
    "FusedMLP",
    "conv2d_bias_act",
    "gated_mlp",
    "linear",
    "linear_gelu",
    "mlp",
]
