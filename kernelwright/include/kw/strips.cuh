// A warp's strip of attention by WMMA: 16 queries, and what keys and values make of them.
// The products are chapter 7's; what stands between the two is an exercise of chapter 9.
//
//   kw::Strip<half, 64> strip(tile + 16 * warp);  // 16 queries from a tile of rows
//   strip.score(scores, tile);                    // q k^T: 16 x KEYS floats
//   kw::weigh<half>(scores, mends, start, kv_len, scale, top, weight);
//   strip.sum[d]                                  // 16 x 16 sums: columns 16 d to + 15
//   strip.store(out, first, length, weight, scores);
//
// Tiles lie in shared memory, their rows padded; scores have rows of KEYS + 4 floats.
#pragma once

#include <cuda_fp16.h>
#include <kw/rows.cuh>
#include <kw/wmma.cuh>

namespace kw {

// Two 16-bit numbers side by side, stored as one.
template <class T>
struct __align__(2 * sizeof(T)) Pair {
    T low, high;
};

template <class T, int D>
struct Strip {
    Left<T> query[D / 16];
    Sum sum[D / 16];

    template <int PITCH>
    __device__ __forceinline__ explicit Strip(const T (*rows)[PITCH]) {
        for (int d = 0; d < D / 16; ++d) {
            nvcuda::wmma::load_matrix_sync(query[d], &rows[0][16 * d], PITCH);
            nvcuda::wmma::fill_fragment(sum[d], 0.0f);
        }
    }

    // As many keys as fit into a row of scores, which is padded by four.
    template <int WIDE, int PITCH>
    __device__ __forceinline__ void score(float (*scores)[WIDE],
                                          const T (*keys)[PITCH]) const {
        for (int n = 0; n < WIDE - 4; n += 16) {
            Sum score;
            nvcuda::wmma::fill_fragment(score, 0.0f);
            for (int d = 0; d < D / 16; ++d) {
                Turned<T> key;
                nvcuda::wmma::load_matrix_sync(key, &keys[n][16 * d], PITCH);
                nvcuda::wmma::mma_sync(score, query[d], key, score);
            }
            nvcuda::wmma::store_matrix_sync(&scores[0][n], score, WIDE,
                                            nvcuda::wmma::mem_row_major);
        }
        __syncwarp();
    }

    // Divides by the row's weight, which is in two lanes' parts; `room` is written to.
    template <int WIDE>
    __device__ __forceinline__ void store(T* out, int first, int length, float weight,
                                          float (*room)[WIDE]) const {
        int r = threadIdx.x % 32 / 2, h = threadIdx.x % 2;
        weight += __shfl_xor_sync(0xffffffff, weight, 1);
        out += (first + r) * D + 8 * h;
        for (int d = 0; d < D / 16; ++d) {
            __syncwarp();
            nvcuda::wmma::store_matrix_sync(room[0], sum[d], WIDE,
                                            nvcuda::wmma::mem_row_major);
            __syncwarp();
            Pair<T> eight[4];
            for (int i = 0; i < 4; ++i) {
                float2 two = reinterpret_cast<float2*>(&room[r][8 * h])[i];
                eight[i] = {T(two.x / weight), T(two.y / weight)};
            }
            if (first + r < length)
                *reinterpret_cast<uint4*>(out + 16 * d) =
                    *reinterpret_cast<uint4*>(eight);
        }
    }
};

// What chapter 9's weigh_rows does with a tile: 16 rows of scores become weights in the
// same room, as T, relative to each row's maximum so far. Lanes 2 r and 2 r + 1 share row
// r: lane h of the two has every other pair of columns. Column 0 is key `start`; those from
// kv_len on are hidden.
template <class T, int WIDE>
__device__ __forceinline__ void weigh(float (*scores)[WIDE], float* mends, int start,
                                      int kv_len, float scale, float& top,
                                      float& weight) {
    constexpr int PAIRS = (WIDE - 4) / 4;  // of a lane
    int r = threadIdx.x % 32 / 2, h = threadIdx.x % 2;
    float2* from = reinterpret_cast<float2*>(scores[r]) + h;
    Pair<T>* to = reinterpret_cast<Pair<T>*>(scores[r]) + h;
    float2 pair[PAIRS];
    float most = top;
    start += 2 * h;
    for (int i = 0; i < PAIRS; ++i) {
        float2 two = from[2 * i];
        two.x = start + 4 * i < kv_len ? scale * two.x : -INFINITY;
        two.y = start + 4 * i + 1 < kv_len ? scale * two.y : -INFINITY;
        most = fmaxf(most, fmaxf(two.x, two.y));
        pair[i] = two;
    }
    most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, 1));
    float shrunk = __expf(top - most);
    mends[r] = shrunk;
    weight *= shrunk;
    top = most;
    __syncwarp();
    for (int i = 0; i < PAIRS; ++i) {
        float2 two{__expf(pair[i].x - most), __expf(pair[i].y - most)};
        weight += two.x + two.y;
        to[2 * i] = {T(two.x), T(two.y)};
    }
    __syncwarp();
}

}  // namespace kw
