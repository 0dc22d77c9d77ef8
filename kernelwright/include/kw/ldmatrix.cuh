// ldmatrix (compute capability 7.5): one, two or four 8 x 8 matrices of 16-bit elements
// from shared memory into the registers of a warp, in the layout that mma_sync wants.
//
//   unsigned a[4];
//   kw::ldmatrix(a, &tile[lane % 16][lane / 16 * 8]);
//
// Lanes 8 i … 8 i + 7 name the rows of matrix i, each 16 bytes and so aligned. Afterwards
// lane l holds in out[i] the elements 2 (l % 4) and 2 (l % 4) + 1 of row l / 4 of matrix i;
// with ldmatrix_trans, of the transposed matrix.
#pragma once

#include <kw/shared.cuh>

namespace kw {

#ifdef __CUDACC__

template <int Count>
__device__ __forceinline__ void ldmatrix(unsigned (&out)[Count], Shared row) {
    static_assert(Count == 1 || Count == 2 || Count == 4,
                  "ldmatrix loads 1, 2 or 4 matrices");
    unsigned from = row.at;
    if constexpr (Count == 1)
        asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
                     : "=r"(out[0])
                     : "r"(from)
                     : "memory");
    if constexpr (Count == 2)
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                     : "=r"(out[0]), "=r"(out[1])
                     : "r"(from)
                     : "memory");
    if constexpr (Count == 4)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                     : "r"(from)
                     : "memory");
}

template <int Count>
__device__ __forceinline__ void ldmatrix_trans(unsigned (&out)[Count], Shared row) {
    static_assert(Count == 1 || Count == 2 || Count == 4,
                  "ldmatrix loads 1, 2 or 4 matrices");
    unsigned from = row.at;
    if constexpr (Count == 1)
        asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
                     : "=r"(out[0])
                     : "r"(from)
                     : "memory");
    if constexpr (Count == 2)
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                     : "=r"(out[0]), "=r"(out[1])
                     : "r"(from)
                     : "memory");
    if constexpr (Count == 4)
        asm volatile(
            "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
            : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
            : "r"(from)
            : "memory");
}

template <int Count>
__device__ __forceinline__ void ldmatrix(unsigned (&out)[Count], const void* row) {
    ldmatrix(out, shared_address(row));
}

template <int Count>
__device__ __forceinline__ void ldmatrix_trans(unsigned (&out)[Count],
                                               const void* row) {
    ldmatrix_trans(out, shared_address(row));
}

#else  // the emulator

template <int Count>
__forceinline__ void ldmatrix(unsigned (&out)[Count], const void* row,
                              int line = __builtin_LINE()) {
    static_assert(Count == 1 || Count == 2 || Count == 4,
                  "ldmatrix loads 1, 2 or 4 matrices");
    kwemu_mma::load_matrix(out, row, Count, false, line);
}

template <int Count>
__forceinline__ void ldmatrix_trans(unsigned (&out)[Count], const void* row,
                                    int line = __builtin_LINE()) {
    static_assert(Count == 1 || Count == 2 || Count == 4,
                  "ldmatrix loads 1, 2 or 4 matrices");
    kwemu_mma::load_matrix(out, row, Count, true, line);
}

template <int Count>
__forceinline__ void ldmatrix(unsigned (&out)[Count], Shared row,
                              int line = __builtin_LINE()) {
    ldmatrix(out, static_cast<const void*>(row.at), line);
}

template <int Count>
__forceinline__ void ldmatrix_trans(unsigned (&out)[Count], Shared row,
                                    int line = __builtin_LINE()) {
    ldmatrix_trans(out, static_cast<const void*>(row.at), line);
}

#endif

}  // namespace kw
