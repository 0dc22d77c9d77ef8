// A block a row, as the formula stands: one sweep for the mean, one for the
// variance, one to write. Each sweep reads the row from memory.

// Adds a value of each of the block's 256 threads; all of them get the sum.
__device__ float block_sum(float value) {
    __shared__ float room[8];
    for (int offset = 16; offset > 0; offset /= 2) {
        value += __shfl_xor_sync(0xffffffff, value, offset);
    }
    __syncthreads();  // all have read the last sum
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = value;
    __syncthreads();
    value = room[threadIdx.x % 8];
    for (int offset = 4; offset > 0; offset /= 2) {
        value += __shfl_xor_sync(0xffffffff, value, offset);
    }
    return value;
}

__global__ void two_pass(const float* x, const float* weight,
                         const float* bias, float* out, int columns,
                         float eps) {
    x += blockIdx.x * columns;
    out += blockIdx.x * columns;
    float sum = 0.0f, squares = 0.0f;
    for (int c = threadIdx.x; c < columns; c += 256) {
        sum += x[c];
    }
    float mean = block_sum(sum) / columns;
    for (int c = threadIdx.x; c < columns; c += 256) {
        squares += (x[c] - mean) * (x[c] - mean);
    }
    float rstd = rsqrtf(block_sum(squares) / columns + eps);
    for (int c = threadIdx.x; c < columns; c += 256) {
        out[c] = (x[c] - mean) * rstd * weight[c] + bias[c];
    }
}
