// mma.sync (compute capability 8.0): D = A B + C by a warp, accumulated in fp32.
//
//   kw::mma_sync<__half>(d, a, b, c);          // m16n8k16; also __nv_bfloat16
//   kw::mma_sync<kw::tf32>(d, a, b, c);        // m16n8k8
//
// a[4], b[2], c[4], d[4] are a lane's registers, lane = 4 g + t:
//   fp16, bf16   a: rows g and g + 8, columns 2t and 2t + 8, two elements each, in the
//                order (g, 2t) (g + 8, 2t) (g, 2t + 8) (g + 8, 2t + 8)
//                b: column g, rows 2t and 2t + 8, two elements each
//   tf32         a: (g, t) (g + 8, t) (g, t + 4) (g + 8, t + 4);  b: (t, g) (t + 4, g)
//   c, d         (g, 2t) (g, 2t + 1) (g + 8, 2t) (g + 8, 2t + 1)
//
// Compute capability 7.5 multiplies fp16 only, in two halves of k; bf16 and tf32 do not
// compile for it.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace kw {

struct tf32;

#ifdef __CUDACC__

#define KW_MMA(instruction)                                                            \
    asm(instruction                                                                    \
        " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"         \
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])                               \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), \
          "f"(c[1]), "f"(c[2]), "f"(c[3]))

template <class T>
__device__ __forceinline__ void mma_sync(float (&d)[4], const unsigned (&a)[4],
                                         const unsigned (&b)[2], const float (&c)[4]) {
    static_assert(sizeof(T) == 0,
                  "mma_sync of bf16 or tf32 needs sm_80 (compute capability 8.0)");
}

template <>
__device__ __forceinline__ void mma_sync<__half>(float (&d)[4], const unsigned (&a)[4],
                                                 const unsigned (&b)[2],
                                                 const float (&c)[4]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
    const float* from = c;
    for (int half = 0; half < 2; ++half, from = d)
        asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"
            " {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %10};"
            : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
            : "r"(a[2 * half]), "r"(a[2 * half + 1]), "r"(b[half]), "f"(from[0]),
              "f"(from[1]), "f"(from[2]), "f"(from[3]));
#else
    KW_MMA("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32");
#endif
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

template <>
__device__ __forceinline__ void mma_sync<__nv_bfloat16>(float (&d)[4],
                                                        const unsigned (&a)[4],
                                                        const unsigned (&b)[2],
                                                        const float (&c)[4]) {
    KW_MMA("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32");
}

template <>
__device__ __forceinline__ void mma_sync<tf32>(float (&d)[4], const unsigned (&a)[4],
                                               const unsigned (&b)[2],
                                               const float (&c)[4]) {
    KW_MMA("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32");
}
#endif

#undef KW_MMA

#else  // the emulator

template <class T>
__forceinline__ void mma_sync(float (&d)[4], const unsigned (&a)[4],
                              const unsigned (&b)[2], const float (&c)[4],
                              int line = __builtin_LINE()) {
    static_assert(sizeof(T) == 2,
                  "mma_sync multiplies __half, __nv_bfloat16 or kw::tf32");
    kwemu_mma::mma<T, false>(d, a, b, c, line);
}

template <>
__forceinline__ void mma_sync<tf32>(float (&d)[4], const unsigned (&a)[4],
                                    const unsigned (&b)[2], const float (&c)[4],
                                    int line) {
    kwemu_mma::mma<float, true>(d, a, b, c, line);
}

#endif

}  // namespace kw
