// <cuda_bf16.h>: __nv_bfloat16, its pair and their functions; see kwemu/half_types.h.
#ifndef KWEMU_CUDA_BF16_H
#define KWEMU_CUDA_BF16_H
using namespace kwemu_bf16;
#endif
