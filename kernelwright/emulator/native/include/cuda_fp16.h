// <cuda_fp16.h>: __half, __half2 and their functions; see kwemu/half_types.h.
#ifndef KWEMU_CUDA_FP16_H
#define KWEMU_CUDA_FP16_H
using namespace kwemu_fp16;
#endif
