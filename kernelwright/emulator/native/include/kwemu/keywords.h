// CUDA's keywords.
#ifndef KWEMU_KEYWORDS_H
#define KWEMU_KEYWORDS_H

#define __KERNELWRIGHT_EMULATOR__ 1
// Code that asks for a capability gets Ampere's: what is newer has no model here.
#define __CUDA_ARCH__ 800

// Not inlined into its thunk, where its lines would be lost.
#define __global__ __attribute__((noinline))
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
// One copy a worker, and a worker runs one block at a time.
#define __shared__ thread_local
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
#define __cluster_dims__(...)

using uchar = unsigned char;
using ushort = unsigned short;
using uint = unsigned int;
using ulong = unsigned long;

#endif  // KWEMU_KEYWORDS_H
