// E[x^2] - E[x]^2 is a small difference of large numbers, each of them rounded:
// with a mean of 10,000 and a deviation of 0.01 nothing of it is left. The row
// is in registers, so take the mean away first; and since the mean is rounded
// too, take away what it was off by.

// [exercise:variance_cancels]
__global__ void variance_cancels(const float* x, float* out, int rows,
                                 int columns, float eps) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    int lane = threadIdx.x % 32;
    if (row >= rows) return;  // all 32 lanes of a warp together
    float v[32];              // this lane's part of the row
    // [hole]
    // [broken]
    // float total = 0.0f, squared = 0.0f;
    // #pragma unroll
    // for (int k = 0, c = lane; k < 32; ++k, c += 32) {
    //     v[k] = c < columns ? x[columns * row + c] : 0.0f;
    //     total += v[k];
    //     squared += v[k] * v[k];
    // }
    // for (int offset = 16; offset > 0; offset /= 2) {
    //     total += __shfl_xor_sync(0xffffffff, total, offset);
    //     squared += __shfl_xor_sync(0xffffffff, squared, offset);
    // }
    // float mean = total / columns;
    // float variance = squared / columns - mean * mean;
    // float rstd = rsqrtf(variance + eps);
    // #pragma unroll
    // for (int k = 0, c = lane; k < 32; ++k, c += 32) {
    //     if (c < columns) out[row * columns + c] = (v[k] - mean) * rstd;
    // }
    // [/broken]
    float sum = 0.0f, rest = 0.0f, squares = 0.0f;
#pragma unroll
    for (int k = 0; k < 32; ++k) {
        int c = lane + 32 * k;
        v[k] = c < columns ? x[row * columns + c] : 0.0f;
        sum += v[k];
    }
    for (int offset = 16; offset > 0; offset /= 2) {
        sum += __shfl_xor_sync(0xffffffff, sum, offset);
    }
    float mean =
        sum / columns;  // rounded: off by up to 0.0005 near 10,000
#pragma unroll
    for (int k = 0; k < 32; ++k) {
        if (lane + 32 * k < columns) {
            v[k] -= mean;
            rest += v[k];
            squares += v[k] * v[k];
        }
    }
    for (int offset = 16; offset > 0; offset /= 2) {
        rest += __shfl_xor_sync(0xffffffff, rest, offset);
        squares += __shfl_xor_sync(0xffffffff, squares, offset);
    }
    rest /= columns;  // what the mean was off by
    float rstd = rsqrtf(squares / columns - rest * rest + eps);
#pragma unroll
    for (int k = 0; k < 32; ++k) {
        int c = lane + 32 * k;
        if (c < columns) out[row * columns + c] = (v[k] - rest) * rstd;
    }
    // [/hole]
}
// [/exercise]
