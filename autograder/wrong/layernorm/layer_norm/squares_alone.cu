// expect: the second sum needs its five shuffles too
__global__ void layer_norm(const float* x, const float* weight,
                           const float* bias, float* out, int rows,
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
    }
    for (int offset = 16; offset > 0; offset /= 2) {
        sum += __shfl_xor_sync(0xffffffff, sum, offset);
    }
    float mean = sum / columns;
#pragma unroll
    for (int k = 0; k < 32; ++k) {
        v[k] -= mean;
        if (lane + 32 * k < columns) squares += v[k] * v[k];
    }
    float rstd = rsqrtf(squares / columns + eps);
#pragma unroll
    for (int k = 0; k < 32; ++k) {
        int c = lane + 32 * k;
        if (c < columns) {
            out[row * columns + c] = v[k] * rstd * weight[c] + bias[c];
        }
    }
}
