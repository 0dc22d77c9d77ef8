// out = x weightᵀ for a few dozen tokens on the tensor cores, the weight in four bits
// and in the fragments' order (see layout.py): a lane's codes of a 16 x 64 tile come as
// one load of 16 bytes. few.cu has more of it: bf16, zeros, a bias, any shape.

// [exercise:int4_gemm]
#include <kw/int4.cuh>
#include <kw/mma.cuh>

constexpr int WARPS = 8;

// Launch: grid (ceil(tokens / 16), rows / 32), block 256.
// rows: a multiple of 32; columns: of 128.
__global__ void __launch_bounds__(256)
    int4_gemm(const uint4* words, const __half* scales, const __half* x,
              __half* out, int tokens, int rows, int columns) {
    __shared__ float shared[WARPS][16][17];  // a warp's tokens and rows
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int g = lane / 4, t = lane % 4;
    int token = 16 * blockIdx.x, row = 32 * blockIdx.y;
    int groups = columns / 128;
    // Warps 0, 2, 4, 6 share the upper 16 rows, the others the lower ones.
    int own = row + warp % 2 * 16;
    float sum[2][4] = {};  // of tokens 0 to 7, and 8 to 15
    // [hole]
    const __half2 eight = kw::Int4<__half>::zero(8);
    const __half2 zero[2] = {eight, eight};
    // A token past the last repeats it, and is not stored.
    auto numbers_of = [&](int which) {
        return x + min(token + which, tokens - 1) * columns + 16 * t;
    };
    const __half* of_token[] = {numbers_of(g), numbers_of(8 + g)};
    // Four warps take turns at the groups, two tiles each; the next two
    // are on their way while these are multiplied.
    const uint4* mine = words + own / 16 * groups * 64 + lane;
    int group = warp / 2;
    uint4 next[2] = {};
    if (group < groups) {
        next[0] = mine[64 * group];
        next[1] = mine[64 * group + 32];
    }
    for (; group < groups; group += WARPS / 2) {
        uint4 held[2] = {next[0], next[1]};
        int coming = group + WARPS / 2;
        if (coming < groups) {
            next[0] = mine[64 * coming];
            next[1] = mine[64 * coming + 32];
        }
        float part[2][4] = {};
#pragma unroll
        for (int half = 0; half < 4; ++half) {
            uint4 four = held[half / 2];
            int column = 128 * group + half / 2 * 64 + half % 2 * 8;
            unsigned first[4], second[4];
            kw::widen<__half>(half % 2 ? four.z : four.x, zero, first);
            kw::widen<__half>(half % 2 ? four.w : four.y, zero, second);
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                uint4 eight_x =
                    *reinterpret_cast<const uint4*>(of_token[j] + column);
                unsigned b[2] = {eight_x.x, eight_x.y};
                unsigned c[2] = {eight_x.z, eight_x.w};
                kw::mma_sync<__half>(part[j], first, b, part[j]);
                kw::mma_sync<__half>(part[j], second, c, part[j]);
            }
        }
        const __half* scale = scales + group * rows + own + g;
        float upper = __half2float(scale[0]);
        float lower = __half2float(scale[8]);
        auto add = [&](float(&to)[4], const float(&products)[4]) {
            to[0] += upper * products[0];
            to[1] += upper * products[1];
            to[2] += lower * products[2];
            to[3] += lower * products[3];
        };
        add(sum[0], part[0]);
        add(sum[1], part[1]);
    }
    // [/hole]
#pragma unroll
    for (int i = 0; i < 8; ++i)
        shared[warp][i / 4 * 8 + 2 * t + i % 2][g + i / 2 % 2 * 8] =
            sum[i / 4][i % 4];
    __syncthreads();
    for (int i = threadIdx.x; i < 16 * 32; i += 256) {
        int at = i / 32, r = i % 32;
        float total = 0.0f;
        for (int w = r / 16; w < WARPS; w += 2)
            total += shared[w][at][r % 16];
        if (token + at < tokens)
            out[(token + at) * rows + row + r] = __float2half(total);
    }
}
// [/exercise]
