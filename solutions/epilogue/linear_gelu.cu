// A linear layer with GELU in its epilogue: bias, activation and rounding happen to the
// sums where they are, in registers. Nothing but the result is written.

// [exercise:linear_gelu]
#include <kw/tiles.cuh>

__device__ float gelu(float x) {
    float y = 0.0f;
    // [hole]
    y = 0.5f * x * (1.0f + erff(0.70710678f * x));
    // [/hole]
    return y;
}

// Launch: grid (n / 128, m / 128), block 128. k: a multiple of 64.
__global__ void __launch_bounds__(128, 2)
    linear_gelu(const __half* x, const __half* weight, const __half* bias,
                __half* out, int m, int n, int k) {
    __shared__ __align__(128) __half left[128 * 64], right[128 * 64];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int row = blockIdx.y * 128, column = blockIdx.x * 128;
    float sum[4][8][4] = {};  // 16 x 8 each: the warp's 64 x 64
    for (int i = 0; i < k; i += 64) {
        kw::copy_tile<128, 64>(left, x + row * k + i, k, kw::swizzled);
        kw::copy_tile<128, 64>(right, weight + column * k + i, k,
                               kw::swizzled);
        __syncthreads();
        kw::multiply_rows(sum, left, right);
        __syncthreads();
    }
    // [hole]
    row += warp / 2 * 64 + lane / 4;
    column += warp % 2 * 64 + lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
        int c = column + 8 * j;
        float2 b =
            __half22float2(*reinterpret_cast<const half2*>(bias + c));
#pragma unroll
        for (int i = 0; i < 4; ++i) {
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                int r = row + 16 * i + 8 * h;
                float first = gelu(sum[i][j][2 * h] + b.x);
                float second = gelu(sum[i][j][2 * h + 1] + b.y);
                *reinterpret_cast<half2*>(out + r * n + c) =
                    __floats2half2_rn(first, second);
            }
        }
    }
    // [/hole]
}
// [/exercise]
