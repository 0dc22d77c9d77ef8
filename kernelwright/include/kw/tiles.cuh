// The parts of a matrix product that are the same in every kernel of chapter 7: a block
// of threads brings a tile, multiplies two, writes one.
//
//   kw::copy_tile<128, 64>(tile, corner, pitch, place);        // through registers
//   kw::copy_tile_async<128, 64>(tile, corner, pitch, place);  // cp.async, not committed
//   kw::copy_tile<128, 64, 256>(…)          // by 256 threads; 128 if it is not said
//   kw::multiply_tiles(sum, left, right);   // 128 x 64 by 64 x 128 halves, swizzled
//   kw::multiply_rows(sum, left, right);    // left rightᵀ: both have rows of 64 along k
//   kw::store_tile(corner, sum, pitch);     // 128 x 128 sums to floats, or with
//   kw::store_tile<4>(corner, sum, pitch);  // four warps side by side, 256 columns
//
// place(row, column, width) says which element of the tile holds (row, column); groups of
// eight columns, 16 bytes, stay together. Corners and pitches are multiples of them.
#pragma once

#include <cuda_fp16.h>
#include <kw/cp_async.cuh>
#include <kw/ldmatrix.cuh>
#include <kw/line.cuh>
#include <kw/mma.cuh>
#include <kw/shared.cuh>

#ifdef __CUDACC__
#define KW_BY_ALL(THREADS)
#else
#define KW_BY_ALL(THREADS)                                                             \
    if (threadIdx.x >= THREADS || blockDim.x < THREADS)                                \
    kwemu_misuse(                                                                      \
        "called for a tile that another number of threads brings than the block has: " \
        "say how many behind the tile's rows and columns, as in copy_tile<128, 64, "   \
        "256>(…), where 128 is meant if nothing is said",                              \
        line)
#endif

namespace kw {

// Keeps the groups of eight in another order in each of eight rows, so that one column
// of groups lies in all 32 banks. Rows are multiples of 128 bytes.
__device__ __forceinline__ int swizzled(int row, int column, int width) {
    return row * width + ((column / 8) ^ (row % 8)) * 8 + column % 8;
}

// THREADS threads bring ROWS x COLUMNS elements, a group of eight at a time. That the
// number of rounds is a constant lets the compiler start all loads before it waits.
template <int ROWS, int COLUMNS, int THREADS = 128, class T, class Place>
__device__ __forceinline__ void copy_tile(T* tile, const T* corner, int pitch,
                                          Place place KW_LINE_PARAMETER) {
    KW_BY_ALL(THREADS);
    constexpr int step = 8 * THREADS / COLUMNS;  // rows in a round
    static_assert(ROWS % step == 0, "whole rounds");
    int row = threadIdx.x / (COLUMNS / 8), column = threadIdx.x % (COLUMNS / 8) * 8;
    corner += row * pitch + column;
#pragma unroll
    for (int r = 0; r < ROWS; r += step)
        *reinterpret_cast<uint4*>(tile + place(row + r, column, COLUMNS)) =
            *reinterpret_cast<const uint4*>(corner + r * pitch);
}

template <int ROWS, int COLUMNS, int THREADS = 128, class T, class Place>
__device__ __forceinline__ void copy_tile_async(Shared tile, const T* corner, int pitch,
                                                Place place KW_LINE_PARAMETER) {
    KW_BY_ALL(THREADS);
    constexpr int bytes = sizeof(T);
    constexpr int step = 8 * THREADS / COLUMNS;  // rows in a round
    static_assert(ROWS % step == 0, "whole rounds");
    int row = threadIdx.x / (COLUMNS / 8), column = threadIdx.x % (COLUMNS / 8) * 8;
    corner += row * pitch + column;
#pragma unroll
    for (int r = 0; r < ROWS; r += step)
        cp_async<16>(tile + bytes * place(row + r, column, COLUMNS), corner + r * pitch,
                     true KW_LINE);
}

template <int ROWS, int COLUMNS, int THREADS = 128, class T, class Place>
__device__ __forceinline__ void copy_tile_async(T* tile, const T* corner, int pitch,
                                                Place place KW_LINE_PARAMETER) {
    copy_tile_async<ROWS, COLUMNS, THREADS>(shared_address(tile), corner, pitch,
                                            place KW_LINE);
}

// Four warps, each 64 x 64 of the 128 x 128 sums.
template <class T>
__device__ __forceinline__ void multiply_tiles(float (&sum)[4][8][4], const T* left,
                                               const T* right KW_LINE_PARAMETER) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int row = warp / 2 * 64 + lane % 16, column = warp % 2 * 64 + lane / 16 * 8;
    constexpr int bytes = sizeof(T);
    Shared from_left = shared_address(left), from_right = shared_address(right);
#pragma unroll
    for (int k = 0; k < 64; k += 16) {
        unsigned x[4][4], y[4][4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            int at = swizzled(row + 16 * i, k + lane / 16 * 8, 64);
            ldmatrix(x[i], from_left + bytes * at KW_LINE);
        }
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            int at = swizzled(k + lane % 16, column + 16 * j, 128);
            ldmatrix_trans(y[j], from_right + bytes * at KW_LINE);
        }
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
            for (int j = 0; j < 8; ++j) {
                unsigned pair[2] = {y[j / 2][j % 2 * 2], y[j / 2][j % 2 * 2 + 1]};
                mma_sync<T>(sum[i][j], x[i], pair, sum[i][j] KW_LINE);
            }
    }
}

// left rightᵀ of tiles that both have rows of 64 along k, swizzled: x and the weight of a
// linear layer. A warp makes 16 DOWN x 8 WIDE sums, ACROSS warps side by side.
template <int ACROSS = 2, class T, int DOWN, int WIDE>
__device__ __forceinline__ void multiply_rows(float (&sum)[DOWN][WIDE][4],
                                              const T* left,
                                              const T* right KW_LINE_PARAMETER) {
    static_assert(WIDE % 2 == 0, "one ldmatrix brings two fragments of right");
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int row = warp / ACROSS * 16 * DOWN + lane % 16;
    int column = warp % ACROSS * 8 * WIDE + lane / 16 * 8 + lane % 8;
    constexpr int bytes = sizeof(T);
    Shared from_left = shared_address(left), from_right = shared_address(right);
#pragma unroll
    for (int k = 0; k < 64; k += 16) {
        unsigned x[DOWN][4], y[WIDE / 2][4];
#pragma unroll
        for (int i = 0; i < DOWN; ++i) {
            int at = swizzled(row + 16 * i, k + lane / 16 * 8, 64);
            ldmatrix(x[i], from_left + bytes * at KW_LINE);
        }
#pragma unroll
        for (int j = 0; j < WIDE / 2; ++j) {
            int at = swizzled(column + 16 * j, k + lane / 8 % 2 * 8, 64);
            ldmatrix(y[j], from_right + bytes * at KW_LINE);
        }
#pragma unroll
        for (int i = 0; i < DOWN; ++i)
#pragma unroll
            for (int j = 0; j < WIDE; ++j) {
                unsigned pair[2] = {y[j / 2][j % 2 * 2], y[j / 2][j % 2 * 2 + 1]};
                mma_sync<T>(sum[i][j], x[i], pair, sum[i][j] KW_LINE);
            }
    }
}

// Lane 4 g + t holds columns 2t and 2t + 1 of rows g and g + 8 of each 16 x 8 sums;
// ACROSS warps of 64 x 64 stand side by side.
template <int ACROSS = 2>
__device__ __forceinline__ void store_tile(float* corner, const float (&sum)[4][8][4],
                                           int pitch) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    corner += (warp / ACROSS * 64 + lane / 4) * pitch;
    corner += warp % ACROSS * 64 + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 8; ++j)
#pragma unroll
            for (int h = 0; h < 2; ++h)
                *reinterpret_cast<float2*>(corner + (16 * i + 8 * h) * pitch + 8 * j) =
                    make_float2(sum[i][j][2 * h], sum[i][j][2 * h + 1]);
}

}  // namespace kw

#undef KW_BY_ALL
