"""Weights of four bits: quantized in groups, packed, multiplied, and kept in files.

    weight[i, j] ≈ (codes[i, j] - zeros[i, g]) * scales[i, g],   g = j // group_size

A token that a model decodes reads every weight once, so a layer's time is its bytes:
four bits a number are a quarter of bf16's.

    packed = pack(quantize(weight, 128))       # weight: (rows, columns)
    y = linear(x, packed, bias)                # as torch.nn.functional.linear
    layer = Int4Linear.from_linear(module)     # as torch.nn.Linear
    save("model.kw4", {"up": packed})          # a file that opens at once:
    weights = load_mmap("model.kw4")

    quantization.py   codes, scales and zeros
    layout.py         eight codes a word, in the order of a tensor core's fragments
    packing.cpp       the same on the CPU, in C++
    few.cu            up to 8 tokens: words straight to fragments
    many.cu           up to 256 tokens: x in shared memory, columns split among blocks
    restore.cu        the matrix again, for more tokens and for gradients
    product.py        which of these, and torch's operator
    files.py          the file format

When not to use it: for products of many tokens, which are bound by arithmetic: there
the weight is restored first, and that is a pass more. For training the weight.
"""

from solutions.int4.files import load_mmap, save
from solutions.int4.functions import linear
from solutions.int4.layout import Packed, pack, unpack
from solutions.int4.modules import Int4Linear
from solutions.int4.quantization import Quantized, dequantize, quantize

__all__ = [
    "Int4Linear",
    "Packed",
    "Quantized",
    "dequantize",
    "linear",
    "load_mmap",
    "pack",
    "quantize",
    "save",
    "unpack",
]
