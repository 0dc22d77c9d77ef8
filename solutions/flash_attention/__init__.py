"""Attention without its matrix of scores: the ladder of chapter 9, and its public face.

    out = softmax(scale * q k^T + mask) v

Forward: 4 q_len kv_len head_dim FLOPs a head (half if causal), and q, k, v and out
moved once: at 16,384 tokens of 16 bits 8,192 FLOPs a byte, so the tensor cores decide.
The matrix of scores, q_len * kv_len, is in no memory; backward computes it again from
q, k and each row's log-sum-exp. fp16, bf16 and fp32; float64 and CPU tensors run in
plain torch, which has the matrix.

The rungs, in the order in which the chapter climbs them:

    reference.py   standard attention, and a tile of keys at a time, in torch
    forward.cu     one kernel: keys and values through shared tiles, a thread a query
    causal.cu      tiles that nobody sees are skipped
    weigh.cu       a tile of scores becomes weights, two lanes a row
    wmma.cu        both products on the tensor cores, 16 queries a warp
    mma.cu         mma.sync: scores and weights stay in registers

``rungs.py`` launches them, ``attention.py`` chooses (chapter 10's Triton and Gluon
kernels are faster on a Hopper and take every option; ``mma`` is the fastest of this
chapter), ``module.py`` is a layer.

When not to use it: for short sequences (512 and fewer) two matrix products and a
softmax are as fast; for a look at the weights, which never are all in memory; and where
cuDNN's kernel is at hand through ``scaled_dot_product_attention``: this chapter's
instruction, ``mma.sync``, cannot reach it on a Hopper.
"""

from __future__ import annotations

import kernelwright  # noqa: F401  before Triton: without a GPU its interpreter is chosen
from solutions.flash_attention.attention import flash_attention
from solutions.flash_attention.module import FlashAttention
from solutions.flash_attention_triton import decode_attention

__all__ = ["FlashAttention", "decode_attention", "flash_attention"]
