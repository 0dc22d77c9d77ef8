// out = x weightᵀ for up to 64 tokens on the tensor cores, the weight in four bits and
// in the fragments' order (see layout.py): a lane's codes of a 16 x 64 tile come as one
// load of 16 bytes. few.cu has more of it: bf16, zeros, a bias, any shape.

// [exercise:int4_gemm]
#include <kw/int4.cuh>
#include <kw/mma.cuh>

constexpr int WARPS = 8;
using Sums = float[WARPS][64][17];  // of a warp: tokens, and 16 rows

// The sums of a warp's groups of columns, for TILES * 8 tokens, go to shared.
template <int TILES>
__device__ void multiply(Sums& shared, const uint4* words,
                         const __half* scales, const __half* x, int tokens,
                         int rows, int columns) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int g = lane / 4, t = lane % 4;
    int row = blockIdx.x * 32 + warp % 2 * 16;  // the first of the warp's
    int steps = columns / 64;                   // tiles of the weight
    float sum[TILES][4] = {};
    // [hole]
    const uint4* mine = words + row / 16 * steps * 32 + lane;
    const __half2 eight = kw::Int4<__half>::zero(8);
    const __half2 zero[2] = {eight, eight};
    const __half* of_token[TILES];
#pragma unroll
    for (int j = 0; j < TILES; ++j) {
        // A token past the last repeats it, and is not stored.
        of_token[j] = x + min(8 * j + g, tokens - 1) * columns + 16 * t;
    }
    // The warps of a row of tiles take turns at the groups, two tiles each.
    for (int group = warp / 2; group < steps / 2; group += WARPS / 2) {
        uint4 held[2] = {mine[64 * group], mine[64 * group + 32]};
        const __half* scale = scales + group * rows + row + g;
        float low = __half2float(scale[0]), high = __half2float(scale[8]);
        float part[TILES][4] = {};
#pragma unroll
        for (int half = 0; half < 4; ++half) {
            uint4 four = held[half / 2];
            unsigned first[4], second[4];
            kw::widen<__half>(half % 2 ? four.z : four.x, zero, first);
            kw::widen<__half>(half % 2 ? four.w : four.y, zero, second);
#pragma unroll
            for (int j = 0; j < TILES; ++j) {
                uint4 number = *reinterpret_cast<const uint4*>(
                    of_token[j] + group * 128 + half / 2 * 64 +
                    half % 2 * 8);
                unsigned b[2] = {number.x, number.y};
                unsigned c[2] = {number.z, number.w};
                kw::mma_sync<__half>(part[j], first, b, part[j]);
                kw::mma_sync<__half>(part[j], second, c, part[j]);
            }
        }
#pragma unroll
        for (int j = 0; j < TILES; ++j) {
            sum[j][0] += low * part[j][0];
            sum[j][1] += low * part[j][1];
            sum[j][2] += high * part[j][2];
            sum[j][3] += high * part[j][3];
        }
    }
    // [/hole]
#pragma unroll
    for (int j = 0; j < TILES; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
            shared[warp][8 * j + 2 * t + i % 2][g + i / 2 * 8] = sum[j][i];
    }
}

// Launch: grid rows / 32, block 256. rows: a multiple of 32; columns: of 128.
__global__ void __launch_bounds__(256)
    int4_gemm(const uint4* words, const __half* scales, const __half* x,
              __half* out, int tokens, int rows, int columns) {
    __shared__ Sums shared;
    if (tokens <= 8)
        multiply<1>(shared, words, scales, x, tokens, rows, columns);
    else if (tokens <= 16)
        multiply<2>(shared, words, scales, x, tokens, rows, columns);
    else if (tokens <= 32)
        multiply<4>(shared, words, scales, x, tokens, rows, columns);
    else
        multiply<8>(shared, words, scales, x, tokens, rows, columns);
    __syncthreads();
    for (int i = threadIdx.x; i < 32 * tokens; i += 256) {
        int token = i / 32, r = i % 32;
        float total = 0.0f;
        for (int warp = r / 16; warp < WARPS; warp += 2)
            total += shared[warp][token][r % 16];
        out[token * rows + blockIdx.x * 32 + r] = __float2half(total);
    }
}
// [/exercise]
