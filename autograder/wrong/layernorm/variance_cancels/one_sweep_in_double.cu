// expect: elements are wrong
__global__ void variance_cancels(const float* x, float* out, int rows,
                                 int columns, float eps) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    int lane = threadIdx.x % 32;
    if (row >= rows) return;  // all 32 lanes of a warp together
    float v[32];              // this lane's part of the row
    double sum = 0.0, squares = 0.0;
    #pragma unroll
    for (int k = 0; k < 32; ++k) {
        int c = lane + 32 * k;
        v[k] = c < columns ? x[row * columns + c] : 0.0f;
        sum += v[k];
        squares += (double)v[k] * v[k];
    }
    for (int offset = 16; offset > 0; offset /= 2) {
        sum += __shfl_xor_sync(0xffffffff, sum, offset);
        squares += __shfl_xor_sync(0xffffffff, squares, offset);
    }
    double mean = sum / columns;
    double variance = squares / columns - mean * mean;
    double rstd = rsqrt(variance + eps);
    #pragma unroll
    for (int k = 0; k < 32; ++k) {
        int c = lane + 32 * k;
        if (c < columns) out[row * columns + c] = (v[k] - mean) * rstd;
    }
}
