// expect: elements are wrong
__global__ void variance_cancels(const float* x, float* out, int rows,
                                 int columns, float eps) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    int lane = threadIdx.x % 32;
    if (row >= rows) return;  // all 32 lanes of a warp together
    float v[32];              // this lane's part of the row
    float sum = 0.0f, squares = 0.0f;
    #pragma unroll
    for (int k = 0; k < 32; ++k) {
        int c = lane + 32 * k;
        v[k] = c < columns ? x[row * columns + c] : 0.0f;
        sum += v[k];
        squares += v[k] * v[k];
    }
    for (int offset = 16; offset > 0; offset /= 2) {
        sum += __shfl_xor_sync(0xffffffff, sum, offset);
        squares += __shfl_xor_sync(0xffffffff, squares, offset);
    }
    float mean = sum / columns;
    float variance = squares / columns - mean * mean;
    float rstd = rsqrtf(fmaxf(variance, 0.0f) + eps);
    #pragma unroll
    for (int k = 0; k < 32; ++k) {
        int c = lane + 32 * k;
        if (c < columns) out[row * columns + c] = (v[k] - mean) * rstd;
    }
}
