"""Multiply 16-bit matrices on the tensor cores: the ladder of chapter 7.

    gemm(a, b)[..., i, j] = sum over l of a[..., i, l] * b[..., l, j]

fp16 and bf16, summed in fp32 whatever comes out. Any shape, empty and odd ones too;
batches are broadcast; a matrix may be stored by rows or by columns (``x.mT`` costs no
copy). Gradients flow through the same kernel. CUDA tensors run on their GPU. CPU
tensors run on the emulator while the product is small (2^24 multiplications, counted
with the tile's rims), and larger ones are left to torch, in fp32.

The rungs, in the order in which the chapter climbs them (whole tiles, one product,
fp32 out):

    wmma_tile.cu        a 16 x 16 tile a warp, straight from global memory
    wmma_shared.cu      WMMA from padded tiles in shared memory
    mma_swizzled.cu     ldmatrix and mma.sync, tiles swizzled
    pipelined.cu        cp.async into three stages
    double_buffered.cu  128 x 256 a block, fragments loaded a step ahead

``gemm.cu`` is what ``gemm`` launches by default: the last rung for every shape and
layout, 64-bit addresses, and smaller tiles for smaller products. Its parts stand in
``kernelwright/include/kw``: they are the machine's instructions on a GPU and C++ on the
emulator.

When not to use it: for speed alone on Hopper and later. cuBLAS issues ``wgmma`` there,
which this chapter's instruction cannot match (0.63 to 0.65 of it on an H200; chapter
19 goes on). For a long k and a small result, where the blocks are too few to fill a
GPU: sums are not split along k here. For fp32 matrices: ``solutions.matmul``.

Chips of compute capability 7.5 multiply fp16 here, without asynchronous copies; they
have no bf16.
"""

from solutions.tensor_cores.product import gemm
from solutions.tensor_cores.tiles import Plan, plan_for

__all__ = ["Plan", "gemm", "plan_for"]
