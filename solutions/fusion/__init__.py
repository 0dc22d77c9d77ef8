"""Element-wise chains as one kernel each, and what makes a kernel of any chain.

    gelu(x)            = x * Phi(x)                2 * itemsize bytes an element
    add_relu(x, y)     = max(0, x + y)             3 * itemsize
    mul_tanh(x, y)     = tanh(x * y)               3 * itemsize
    bias_gelu(x, b)    = gelu(x + b), b a row      2 * itemsize
    fuse(function)     any chain of operations on each element

Memory decides all of them: a chain in eager PyTorch reads and writes its operands once
for each operation, and one kernel reads each input once and writes the result once.
fp16, bf16, fp32 and fp64, computed in fp32 (fp64 for fp64) and rounded once. Shapes
broadcast. Gradients flow, as a fused kernel too. CPU tensors run on the emulator.

    expression.py   a function of torch's operations, traced into a graph
    derivative.py   the graph's gradients, as graphs
    source.py       graphs printed as one CUDA C++ kernel
    launch.py       shapes, launches, torch's operator

When not to use it: in a program that ``torch.compile`` takes anyway, which fuses such
chains by itself, and with its neighbours. Behind a product with a matrix, whose
epilogue does it for nothing. For a sum or a norm: ``solutions.reduction``,
``solutions.layernorm``.
"""

from __future__ import annotations

from solutions.fusion.functions import add_relu, bias_gelu, fuse, gelu, mul_tanh

__all__ = ["add_relu", "bias_gelu", "fuse", "gelu", "mul_tanh"]
