// WMMA's fragments by name, all 16 x 16 with sums of floats, and what is done with several.
//
//   kw::Left<half> x[4];           // operands that are stored by rows
//   kw::Right<half> y[2];
//   kw::Turned<half> z;            // a right one that is stored by columns
//   kw::Sum sum[4][2];
//   kw::clear(sum);                // zeros
//   kw::store(corner, sum, pitch)  // side by side as in the array, to rows of floats
//
// And wmma::load_matrix_sync for a tile that lies in shared memory.
//
//   kw::load_shared(x, &tile[0], pitch);   // x: a fragment of matrix_a or matrix_b
//
// The library's own call is one generic instruction. Where the compiler finds out by
// itself that the pointer is a shared one it becomes LDSM; for bf16 it does not (CUDA 13),
// and the call becomes single loads (LD) and a transposition of registers (MOVM). Here the
// memory is named.
#pragma once

#include <cuda_bf16.h>
#ifdef __CUDACC__
#include <cuda/std/type_traits>
#endif
#include <kw/line.cuh>
#include <mma.h>

namespace kw {

template <class T>
using Left = nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, 16, T,
                                    nvcuda::wmma::row_major>;
template <class T>
using Right = nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, T,
                                     nvcuda::wmma::row_major>;
template <class T>
using Turned = nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, T,
                                      nvcuda::wmma::col_major>;
using Sum = nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float>;

template <int ROWS, int COLUMNS>
__device__ __forceinline__ void clear(Sum (&sum)[ROWS][COLUMNS]) {
    for (int r = 0; r < ROWS; ++r)
        for (int s = 0; s < COLUMNS; ++s) nvcuda::wmma::fill_fragment(sum[r][s], 0.0f);
}

template <int ROWS, int COLUMNS>
__device__ __forceinline__ void store(float* corner, const Sum (&sum)[ROWS][COLUMNS],
                                      int pitch KW_LINE_PARAMETER) {
    for (int r = 0; r < ROWS; ++r)
        for (int s = 0; s < COLUMNS; ++s)
            nvcuda::wmma::store_matrix_sync(corner + 16 * r * pitch + 16 * s, sum[r][s],
                                            pitch, nvcuda::wmma::mem_row_major KW_LINE);
}

template <class Fragment, class T>
__device__ __forceinline__ void load_shared(Fragment& fragment, const T* from,
                                            unsigned pitch KW_LINE_PARAMETER) {
    nvcuda::wmma::load_matrix_sync(fragment, from, pitch KW_LINE);
}

#ifdef __CUDACC__

#define KW_WMMA_LOAD(matrix, layout)                                  \
    asm volatile("wmma.load." matrix ".sync.aligned." layout          \
                 ".m16n16k16.shared.bf16 {%0, %1, %2, %3}, [%4], %5;" \
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])     \
                 : "r"(at), "r"(pitch)                                \
                 : "memory")

template <class Use, class Layout>
__device__ __forceinline__ void load_shared(
    nvcuda::wmma::fragment<Use, 16, 16, 16, __nv_bfloat16, Layout>& fragment,
    const __nv_bfloat16* from, unsigned pitch) {
    unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(from));
    unsigned* x = reinterpret_cast<unsigned*>(fragment.x);
    constexpr bool is_a = cuda::std::is_same_v<Use, nvcuda::wmma::matrix_a>;
    constexpr bool by_rows = cuda::std::is_same_v<Layout, nvcuda::wmma::row_major>;
    if constexpr (is_a && by_rows) KW_WMMA_LOAD("a", "row");
    if constexpr (is_a && !by_rows) KW_WMMA_LOAD("a", "col");
    if constexpr (!is_a && by_rows) KW_WMMA_LOAD("b", "row");
    if constexpr (!is_a && !by_rows) KW_WMMA_LOAD("b", "col");
}

#undef KW_WMMA_LOAD

#endif

}  // namespace kw
