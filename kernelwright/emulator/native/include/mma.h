// <mma.h>: nvcuda::wmma; see kwemu/wmma.h.
#ifndef KWEMU_MMA_H
#define KWEMU_MMA_H
#include <cuda_bf16.h>
#include <cuda_fp16.h>
namespace nvcuda {
namespace wmma = ::kwemu_wmma;
}
using kwemu_wmma::__float_to_tf32;
#endif
