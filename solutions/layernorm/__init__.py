"""Normalise the rows of a tensor: layer norm, RMSNorm, and layer norm with a ReLU.

    layer_norm(x)      = (x - mean) / sqrt(variance + eps) * weight + bias
    rms_norm(x)        = x / sqrt(mean of x^2 + eps) * weight
    layer_norm_relu(x) = max(0, layer_norm(x))

Forward: x read once, y written once, about 10 FLOPs an element: memory decides.
Backward: x and dy read once, dx written once. fp16, bf16, fp32 and fp64; statistics
and sums in fp32 (fp64 for fp64), each result rounded once. CPU tensors run on the
emulator, thread by thread: right, and slow. Gradients of x, weight and bias, once (no
gradient of a gradient).

The mean is kept in two parts, itself and what its rounding lost. A row with mean
10,000 and deviation 0.01 so comes out as exactly as any other; torch, which keeps
one part, is off by a tenth of a deviation there.

The rungs, in the order in which the chapter climbs them (fp32, 32-bit indices):

    two_pass.cu      as the formula stands: the row is read three times
    welford.cu       mean and variance in one sweep: read twice
    warp_row.cu      a warp a row, held in registers, summed by shuffles: read once
    vectorized.cu    16 bytes an instruction, rows of up to 8,192; with the ReLU
    rms.cu           RMSNorm of halves, summed in float
    partials.cu      the gradients, with partial sums a block and a second stage

``forward.cu`` and ``backward.cu`` (with ``row.cuh``) are what the functions launch, and
``plans.py`` chooses among their instances.

Autocast: as torch does on CUDA, ``layer_norm`` (and ``layer_norm_relu``) computes in
and returns float32 inside a region; ``rms_norm``, and both on a CPU, keep x's dtype.

When not to use it: next to element-wise work that could be fused with it. Where a
handful of rows are each millions long: a row has one block. In a graph that
``torch.compile`` should see through: it cannot look into these kernels.
"""

from __future__ import annotations

from solutions.layernorm.functional import layer_norm, layer_norm_relu, rms_norm
from solutions.layernorm.modules import FusedLayerNorm, LayerNorm, RMSNorm

__all__ = [
    "FusedLayerNorm",
    "LayerNorm",
    "RMSNorm",
    "layer_norm",
    "layer_norm_relu",
    "rms_norm",
]
