// out = x weightᵀ for a few tokens, the weight in four bits (see layout.py).
//
// A block has 16 rows of the weight; its warps take turns at the groups of columns that
// share a scale. The weight is the tensor cores' left operand, of which a lane's
// fragments come as one load of 16 bytes. Tokens are the columns of the right operand:
// in which order the products are added is free, so a lane's numbers of x, too, are
// neighbours. The codes are multiplied as the integers that they are, and a group's
// sums by its scale, in fp32: nothing is rounded but x and the result.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <kw/cp_async.cuh>
#include <kw/int4.cuh>
#include <kw/mma.cuh>

// Sixteen numbers of x: those of the columns that the lane has of the weight.
struct Numbers {
    uint4 half[2];
};

template <typename T>
__device__ Numbers load_numbers(const T* x, int column, int columns) {
    Numbers found = {};
    for (int i = 0; i < 2; ++i) {
        if (x && column + 8 * i < columns)
            found.half[i] =
                *reinterpret_cast<const uint4*>(x + column + 8 * i);
    }
    return found;
}

// STEPS tiles of 64 columns, a unit, share a scale. DEPTH units of every warp are on
// their way to shared memory.
template <typename T, int TOKEN_TILES, int WARPS, int STEPS, int DEPTH>
__global__ void __launch_bounds__(WARPS * 32, 32 / WARPS)
    int4_few(const uint4* words, const T* scales,
             const unsigned char* zeros, const T* x, const T* bias, T* out,
             int tokens, int rows, int columns, int pitch,
             int group_steps) {
    using Pair = typename kw::Int4<T>::Pair;
    constexpr int TOKENS = 8 * TOKEN_TILES;
    // Of a unit: its words, and its scales and zeros, sixteen each.
    __shared__ uint4 ring[WARPS][DEPTH][STEPS][32];
    __shared__ __align__(16) T ring_scales[WARPS][DEPTH][16];
    __shared__ __align__(16) unsigned char ring_zeros[WARPS][DEPTH][16];
    __shared__ float shared[WARPS][TOKENS][17];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int g = lane / 4, t = lane % 4;
    const int across = (columns + 63) / 64,
              units = (across + STEPS - 1) / STEPS;
    const long long row = 16LL * blockIdx.x;
    const uint4* mine =
        words + static_cast<long long>(blockIdx.x) * across * 32 + lane;
    const T* of_token[TOKEN_TILES];
#pragma unroll
    for (int j = 0; j < TOKEN_TILES; ++j) {
        const int token = 8 * (TOKEN_TILES * blockIdx.y + j) + g;
        of_token[j] = token < tokens
                          ? x + static_cast<long long>(token) * columns
                          : nullptr;
    }
    auto ask = [&](int unit, int slot) {
#pragma unroll
        for (int s = 0; s < STEPS; ++s) {
            const int step = unit * STEPS + s;
            const bool there = step < across;
            kw::cp_async<16>(&ring[warp][slot][s][lane],
                             mine + (there ? 32LL * step : 0), there);
        }
        const bool there = unit < units && lane < 3;
        const long long at =
            there ? static_cast<long long>(unit * STEPS / group_steps) *
                            pitch +
                        row
                  : 0;
        if (lane < 2)
            kw::cp_async<16>(&ring_scales[warp][slot][8 * lane],
                             scales + at + 8 * lane, there);
        if (lane == 2)
            kw::cp_async<16>(ring_zeros[warp][slot], zeros + at, there);
        kw::cp_async_commit();
    };
#pragma unroll
    for (int d = 0; d < DEPTH; ++d) ask(warp + d * WARPS, d);
    float sum[TOKEN_TILES][4] = {};
    int slot = 0;
    for (int unit = warp; unit < units; unit += WARPS) {
        Numbers numbers[STEPS][TOKEN_TILES];
#pragma unroll
        for (int s = 0; s < STEPS; ++s) {
#pragma unroll
            for (int j = 0; j < TOKEN_TILES; ++j)
                numbers[s][j] = load_numbers(
                    of_token[j], (unit * STEPS + s) * 64 + 16 * t,
                    columns);
        }
        kw::cp_async_wait<DEPTH - 1>();
        __syncwarp();
        uint4 held[STEPS];
#pragma unroll
        for (int s = 0; s < STEPS; ++s)
            held[s] = ring[warp][slot][s][lane];
        Pair zero[2];
        float scale[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            zero[i] = kw::Int4<T>::zero(ring_zeros[warp][slot][g + 8 * i]);
            scale[i] =
                static_cast<float>(ring_scales[warp][slot][g + 8 * i]);
        }
        __syncwarp();
        ask(unit + DEPTH * WARPS, slot);
        slot = slot + 1 == DEPTH ? 0 : slot + 1;
        float part[TOKEN_TILES][4] = {};
#pragma unroll
        for (int s = 0; s < STEPS; ++s) {
            const unsigned word[4] = {held[s].x, held[s].y, held[s].z,
                                      held[s].w};
#pragma unroll
            for (int f = 0; f < 4; ++f) {
                unsigned a[4];
                kw::widen<T>(word[f], zero, a);
#pragma unroll
                for (int j = 0; j < TOKEN_TILES; ++j) {
                    const uint4 four = numbers[s][j].half[f / 2];
                    const unsigned b[2] = {f % 2 ? four.z : four.x,
                                           f % 2 ? four.w : four.y};
                    kw::mma_sync<T>(part[j], a, b, part[j]);
                }
            }
        }
#pragma unroll
        for (int j = 0; j < TOKEN_TILES; ++j) {
#pragma unroll
            for (int i = 0; i < 4; ++i)
                sum[j][i] += scale[i / 2] * part[j][i];
        }
    }
    kw::cp_async_wait_all();
#pragma unroll
    for (int j = 0; j < TOKEN_TILES; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
            shared[warp][8 * j + 2 * t + i % 2][g + i / 2 * 8] = sum[j][i];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 16 * TOKENS; i += WARPS * 32) {
        const int token = i / 16, r = i % 16;
        float total = 0.0f;
#pragma unroll
        for (int w = 0; w < WARPS; ++w) total += shared[w][token][r];
        const int place = TOKENS * blockIdx.y + token;
        if (place >= tokens || row + r >= rows) continue;
        if (bias) total += static_cast<float>(bias[row + r]);
        out[static_cast<long long>(place) * rows + row + r] =
            static_cast<T>(total);
    }
}
