// As the formula stands: one sweep for the sum, one to write. Right as long as
// exp(x) fits a float: from x = 89 on it is inf, and inf / inf is NaN; a row
// below -104 sums to 0.

// Adds a value of each of the block's 256 threads; all of them get the sum.
__device__ float block_sum(float value) {
    __shared__ float room[8];
    for (int offset = 16; offset > 0; offset /= 2) {
        value += __shfl_xor_sync(0xffffffff, value, offset);
    }
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = value;
    __syncthreads();
    value = 0.0f;
    for (int w = 0; w < 8; ++w) value += room[w];
    return value;
}

__global__ void softmax_naive(const float* x, float* out, int columns) {
    x += (size_t)blockIdx.x * columns;
    out += (size_t)blockIdx.x * columns;
    float sum = 0.0f;
    for (int c = threadIdx.x; c < columns; c += 256) {
        sum += expf(x[c]);
    }
    sum = block_sum(sum);
    for (int c = threadIdx.x; c < columns; c += 256) {
        out[c] = expf(x[c]) / sum;
    }
}
