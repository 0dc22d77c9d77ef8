// Codes of four bits on their way to the tensor cores.
//
//   using Pair = kw::Int4<__half>::Pair;                  // also __nv_bfloat16
//   Pair zero[2] = {kw::Int4<__half>::zero(8), ...};      // of rows g and g + 8
//   unsigned a[4];
//   kw::widen<__half>(word, zero, a);                     // an A fragment of mma_sync
//
// Nibble i of a word is the first number of register i, nibble i + 4 the second: eight
// codes less their zero, exact. A code among the lowest bits of the mantissa of 2^n
// makes the float 2^n + code, so that no conversion is needed.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace kw {

// FIRST: the bits of 2^n, twice.
template <typename Two, unsigned FIRST>
struct Int4Of {
    using Pair = Two;
    static constexpr unsigned ONES = FIRST;

    static __device__ Pair zero(unsigned code) {
        const unsigned bits = FIRST | code * 0x10001u;
        return reinterpret_cast<const Pair&>(bits);
    }
};

template <typename T>
struct Int4;

template <>
struct Int4<__half> : Int4Of<__half2, 0x64006400> {  // 1024
    static __device__ Pair twice(float x) { return __float2half2_rn(x); }
};

template <>
struct Int4<__nv_bfloat16> : Int4Of<__nv_bfloat162, 0x43004300> {  // 128
    static __device__ Pair twice(float x) { return __float2bfloat162_rn(x); }
};

// Two codes, 16 bits apart, in two numbers' lowest bits.
template <typename T>
__device__ __forceinline__ unsigned codes_of(unsigned word) {
#ifdef __CUDACC__
    // One instruction, which takes a single constant: the other stays in a register,
    // where the compiler would make two instructions of it.
    unsigned bits;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;"
        : "=r"(bits)
        : "r"(word), "n"(0x000f000f), "r"(Int4<T>::ONES));
    return bits;
#else
    return (word & 0x000f000f) | Int4<T>::ONES;
#endif
}

template <typename T>
__device__ __forceinline__ void widen(unsigned word,
                                      const typename Int4<T>::Pair (&zero)[2],
                                      unsigned (&a)[4]) {
    using Pair = typename Int4<T>::Pair;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const unsigned bits = codes_of<T>(word >> 4 * i);
        const Pair code = __hsub2(reinterpret_cast<const Pair&>(bits), zero[i % 2]);
        a[i] = reinterpret_cast<const unsigned&>(code);
    }
}

// The same, times the scales of rows g and g + 8: rounded to T once.
template <typename T>
__device__ __forceinline__ void widen(unsigned word,
                                      const typename Int4<T>::Pair (&zero)[2],
                                      const typename Int4<T>::Pair (&scale)[2],
                                      unsigned (&a)[4]) {
    using Pair = typename Int4<T>::Pair;
    widen<T>(word, zero, a);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const Pair scaled = __hmul2(reinterpret_cast<const Pair&>(a[i]), scale[i % 2]);
        a[i] = reinterpret_cast<const unsigned&>(scaled);
    }
}

}  // namespace kw
