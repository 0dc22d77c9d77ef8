// out = x weightᵀ for dozens of tokens, the weight in four bits (see layout.py).
//
// A block has WARPS * ROW_TILES * 16 rows of the weight and 8 * TOKEN_TILES tokens. Its
// tokens' numbers, 64 columns of x at a time, come into shared memory by asynchronous
// copies, and every warp reads them from there; words of the weight go straight from
// memory to the lane that needs them, a step ahead. Where rows and tokens make too few
// blocks, the columns are split among blocks as well; the last of these to end adds what
// all left, always in one order.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <kw/cp_async.cuh>
#include <kw/int4.cuh>
#include <kw/mma.cuh>

constexpr int STEP = 64;  // columns
constexpr int GROUPS =
    STEP / 8;  // of 16 bytes, in a token's part of a step

// Where 16 bytes of a token lie: neighbouring tokens use different banks.
__device__ int place_of(int token, int group) {
    return (token * GROUPS + (group ^ token % 8)) * 8;
}

template <typename T, int TOKENS, int THREADS>
__device__ void bring(T* to, const T* x, int first_token, int tokens,
                      int step, int columns) {
    for (int i = threadIdx.x; i < TOKENS * GROUPS; i += THREADS) {
        const int token = first_token + i / GROUPS,
                  column = step * STEP + i % GROUPS * 8;
        const bool there = token < tokens && column < columns;
        const T* from =
            x +
            (there ? static_cast<long long>(token) * columns + column : 0);
        kw::cp_async<16>(to + place_of(i / GROUPS, i % GROUPS), from,
                         there);
    }
}

template <typename T, int TOKEN_TILES, int WARPS, int ROW_TILES,
          int STAGES>
__global__ void __launch_bounds__(WARPS * 32)
    int4_many(const uint4* words, const T* scales,
              const unsigned char* zeros, const T* x, const T* bias,
              T* out, float* parts, int* arrived, int tokens, int rows,
              int columns, int pitch, int group_size) {
    using Pair = typename kw::Int4<T>::Pair;
    constexpr int TOKENS = 8 * TOKEN_TILES, THREADS = 32 * WARPS;
    __shared__ __align__(16) T tiles[STAGES][TOKENS * STEP];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int g = lane / 4, t = lane % 4;
    const int across = (columns + STEP - 1) / STEP,
              down = (rows + 15) / 16;
    const int first_token = TOKENS * blockIdx.y;
    const int tile = (blockIdx.x * WARPS + warp) * ROW_TILES;
    // This block's columns, in steps.
    const int begin =
        static_cast<long long>(across) * blockIdx.z / gridDim.z;
    const int end =
        static_cast<long long>(across) * (blockIdx.z + 1) / gridDim.z;

    uint4 next[ROW_TILES];
    auto fetch = [&](int step) {
#pragma unroll
        for (int r = 0; r < ROW_TILES; ++r) {
            const long long at =
                static_cast<long long>(tile + r) * across + step;
            next[r] = tile + r < down && step < end ? words[32 * at + lane]
                                                    : uint4{};
        }
    };
    for (int s = 0; s < STAGES - 1; ++s) {
        if (begin + s < end)
            bring<T, TOKENS, THREADS>(tiles[s], x, first_token, tokens,
                                      begin + s, columns);
        kw::cp_async_commit();
    }
    fetch(begin);
    float sum[ROW_TILES][TOKEN_TILES][4] = {};
    for (int step = begin; step < end; ++step) {
        kw::cp_async_wait<STAGES - 2>();
        __syncthreads();
        const int coming = step + STAGES - 1;
        if (coming < end)
            bring<T, TOKENS, THREADS>(tiles[(coming - begin) % STAGES], x,
                                      first_token, tokens, coming,
                                      columns);
        kw::cp_async_commit();
        const T* here = tiles[(step - begin) % STAGES];
        uint4 held[ROW_TILES];
        Pair zero[ROW_TILES][2], scale[ROW_TILES][2];
        // A lane's sixteen columns are of one group.
        const int group =
            min(step * STEP + 16 * t, columns - 1) / group_size;
#pragma unroll
        for (int r = 0; r < ROW_TILES; ++r) {
            held[r] = next[r];
            const int row = min(tile + r, down - 1) * 16 + g;
            const long long at =
                static_cast<long long>(group) * pitch + row;
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                zero[r][i] = kw::Int4<T>::zero(zeros[at + 8 * i]);
                scale[r][i] = kw::Int4<T>::twice(
                    static_cast<float>(scales[at + 8 * i]));
            }
        }
        fetch(step + 1);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            uint4 numbers[TOKEN_TILES];
#pragma unroll
            for (int j = 0; j < TOKEN_TILES; ++j) {
                numbers[j] = *reinterpret_cast<const uint4*>(
                    here + place_of(8 * j + g, 2 * t + half));
            }
#pragma unroll
            for (int f = 0; f < 2; ++f) {
#pragma unroll
                for (int r = 0; r < ROW_TILES; ++r) {
                    const uint4 w = held[r];
                    const unsigned word =
                        half ? (f ? w.w : w.z) : (f ? w.y : w.x);
                    unsigned a[4];
                    kw::widen<T>(word, zero[r], scale[r], a);
#pragma unroll
                    for (int j = 0; j < TOKEN_TILES; ++j) {
                        const unsigned b[2] = {
                            f ? numbers[j].z : numbers[j].x,
                            f ? numbers[j].w : numbers[j].y};
                        kw::mma_sync<T>(sum[r][j], a, b, sum[r][j]);
                    }
                }
            }
        }
    }
    kw::cp_async_wait_all();
    const bool alone = gridDim.z == 1;
    const long long size = static_cast<long long>(tokens) * rows;
#pragma unroll
    for (int r = 0; r < ROW_TILES; ++r) {
#pragma unroll
        for (int j = 0; j < TOKEN_TILES; ++j) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int row = (tile + r) * 16 + g + i / 2 * 8;
                const int token = first_token + 8 * j + 2 * t + i % 2;
                if (row >= rows || token >= tokens) continue;
                const long long at =
                    static_cast<long long>(token) * rows + row;
                if (alone) {
                    const float more =
                        bias ? static_cast<float>(bias[row]) : 0.0f;
                    out[at] = static_cast<T>(sum[r][j][i] + more);
                } else {
                    parts[size * blockIdx.z + at] = sum[r][j][i];
                }
            }
        }
    }
    if (alone) return;
    __shared__ bool is_last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        int* counter = arrived + blockIdx.y * gridDim.x + blockIdx.x;
        is_last = atomicAdd(counter, 1) == static_cast<int>(gridDim.z) - 1;
        if (is_last) *counter = 0;  // for the next launch
    }
    __syncthreads();
    if (!is_last) return;
    __threadfence();
    constexpr int ROWS = 16 * WARPS * ROW_TILES;
    for (int i = threadIdx.x; i < TOKENS * ROWS; i += THREADS) {
        const int row = blockIdx.x * ROWS + i % ROWS,
                  token = first_token + i / ROWS;
        if (row >= rows || token >= tokens) continue;
        const long long at = static_cast<long long>(token) * rows + row;
        float total = bias ? static_cast<float>(bias[row]) : 0.0f;
        for (int z = 0; z < static_cast<int>(gridDim.z); ++z)
            total += __ldcg(parts + size * z + at);
        out[at] = static_cast<T>(total);
    }
}
