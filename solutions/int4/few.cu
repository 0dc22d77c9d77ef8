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
#include <kw/int4.cuh>
#include <kw/mma.cuh>

// What a lane needs of a unit: STEPS tiles of 64 columns, which share a scale.
template <typename T, int STEPS>
struct Unit {
    uint4 words[STEPS];
    T scales[2];  // of rows g and g + 8
    unsigned char zeros[2];
};

// DEPTH units of every warp are on their way to its registers.
template <typename T, int TOKEN_TILES, int WARPS, int STEPS, int DEPTH>
__global__ void __launch_bounds__(WARPS * 32)
    int4_few(const uint4* words, const T* scales,
             const unsigned char* zeros, const T* x, const T* bias, T* out,
             int tokens, int rows, int columns, int pitch,
             int group_units) {
    using Pair = typename kw::Int4<T>::Pair;
    constexpr int TOKENS = 8 * TOKEN_TILES;
    __shared__ float shared[WARPS][TOKENS][17];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int g = lane / 4, t = lane % 4;
    const int across = (columns + 63) / 64,
              units = (across + STEPS - 1) / STEPS;
    const long long row = 16LL * blockIdx.x;
    // Pointers move along with the units, so that no address is reckoned twice.
    words +=
        (static_cast<long long>(blockIdx.x) * across + STEPS * warp) * 32 +
        lane;
    scales += row + g;
    zeros += row + g;
    // Behind the last token its numbers are multiplied again, for nobody.
    const T* of_token[TOKEN_TILES];
#pragma unroll
    for (int j = 0; j < TOKEN_TILES; ++j) {
        const int token = 8 * (TOKEN_TILES * blockIdx.y + j) + g;
        of_token[j] =
            x + static_cast<long long>(min(token, tokens - 1)) * columns +
            64 * STEPS * warp + 16 * t;
    }
    int left = columns - 64 * STEPS * warp - 16 * t;
    auto ask = [&](int unit, Unit<T, STEPS>& held) {
        if (unit >= units) return;
#pragma unroll
        for (int s = 0; s < STEPS; ++s)
            held.words[s] =
                unit * STEPS + s < across ? words[32 * s] : uint4{};
        words += 32 * STEPS * WARPS;
        // Most often a unit is a group: a division takes as long as a product.
        const int group = group_units == 1 ? unit : unit / group_units;
        const long long at = static_cast<long long>(group) * pitch;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            held.scales[i] = scales[at + 8 * i];
            held.zeros[i] = zeros[at + 8 * i];
        }
    };
    float sum[TOKEN_TILES][4] = {};
    auto multiply = [&](const Unit<T, STEPS>& held) {
        uint4 numbers[STEPS][TOKEN_TILES][2] = {};
#pragma unroll
        for (int s = 0; s < STEPS; ++s) {
#pragma unroll
            for (int j = 0; j < TOKEN_TILES; ++j) {
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    const int column = 64 * s + 8 * i;
                    if (column < left)
                        numbers[s][j][i] = *reinterpret_cast<const uint4*>(
                            of_token[j] + column);
                }
            }
        }
#pragma unroll
        for (int j = 0; j < TOKEN_TILES; ++j)
            of_token[j] += 64 * STEPS * WARPS;
        left -= 64 * STEPS * WARPS;
        Pair zero[2];
#pragma unroll
        for (int i = 0; i < 2; ++i)
            zero[i] = kw::Int4<T>::zero(held.zeros[i]);
        float part[TOKEN_TILES][4] = {};
#pragma unroll
        for (int s = 0; s < STEPS; ++s) {
            const unsigned word[4] = {held.words[s].x, held.words[s].y,
                                      held.words[s].z, held.words[s].w};
#pragma unroll
            for (int f = 0; f < 4; ++f) {
                unsigned a[4];
                kw::widen<T>(word[f], zero, a);
#pragma unroll
                for (int j = 0; j < TOKEN_TILES; ++j) {
                    const uint4 four = numbers[s][j][f / 2];
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
                sum[j][i] +=
                    static_cast<float>(held.scales[i / 2]) * part[j][i];
        }
    };
    Unit<T, STEPS> held[DEPTH] = {};
#pragma unroll
    for (int d = 0; d < DEPTH; ++d) ask(warp + d * WARPS, held[d]);
    for (int first = warp; first < units; first += DEPTH * WARPS) {
#pragma unroll
        for (int d = 0; d < DEPTH; ++d) {
            const int unit = first + d * WARPS;
            if (unit >= units) break;
            multiply(held[d]);
            ask(unit + DEPTH * WARPS, held[d]);
        }
    }
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
