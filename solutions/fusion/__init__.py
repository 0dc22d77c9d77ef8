"""Element-wise chains as one kernel each, and what makes a kernel of any chain.

    gelu(x)            = x * Phi(x)                2 * itemsize bytes an element
    add_relu(x, y)     = max(0, x + y)             3 * itemsize
    mul_tanh(x, y)     = tanh(x * y)               3 * itemsize
    bias_gelu(x, b)    = gelu(x + b), b a row      2 * itemsize
    gelu_dropout(x, p) = gelu(x), a share dropped  2 * itemsize
    attention_score    = softmax(scale * q k^T)    itemsize an element of the result
    fuse(function)     any chain of operations on each element

Memory decides all of them: a chain in eager PyTorch reads and writes its operands once
for each operation, and one kernel reads each input once and writes the result once.
fp16, bf16, fp32 and fp64, computed in fp32 (fp64 for fp64) and rounded once. Shapes
broadcast. Gradients flow, as a fused kernel too. CPU tensors run on the emulator.

    expression.py   a function of torch's operations, traced into a graph
    derivative.py   the graph's gradients, as graphs
    source.py       graphs printed as one CUDA C++ kernel
    launch.py       shapes, launches, torch's operator
    functions.py    the named chains, and ``fuse``
    scores.py       a product and its softmax, which no chain is

When not to use it: in a program that ``torch.compile`` takes anyway, which fuses such
chains by itself, and with its neighbours. Behind a product with a matrix, whose
epilogue does it for nothing. For a sum or a norm: ``solutions.reduction``,
``solutions.layernorm``.
"""

from __future__ import annotations

from solutions.fusion.functions import (
    add_relu,
    bias_gelu,
    fuse,
    gelu,
    gelu_dropout,
    mul_tanh,
)
from solutions.fusion.scores import attention_score

__all__ = [
    "add_relu",
    "attention_score",
    "bias_gelu",
    "fuse",
    "gelu",
    "gelu_dropout",
    "mul_tanh",
]
