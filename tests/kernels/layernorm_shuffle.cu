// y = (x - mean) / sqrt(variance + eps) * gamma + beta, a row a block. Sums go through the
// registers of a warp first, then through one shared slot a warp.

__device__ float warp_sum(float v) {
    for (int offset = 16; offset > 0; offset /= 2)
        v += __shfl_down_sync(0xffffffff, v, offset);
    return v;  // whole in lane 0
}

__device__ float block_sum(float v) {
    __shared__ float slots[32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    v = warp_sum(v);
    __syncthreads();  // the slots may still be read from the sum before
    if (lane == 0) slots[warp] = v;
    __syncthreads();
    v = threadIdx.x < blockDim.x / 32 ? slots[lane] : 0.0f;
    if (warp == 0) {
        v = warp_sum(v);
        if (lane == 0) slots[0] = v;
    }
    __syncthreads();
    return slots[0];
}

// Launch: grid = rows, block = a multiple of 32.
__global__ void layernorm(const float* __restrict__ x, const float* __restrict__ gamma,
                          const float* __restrict__ beta, float* __restrict__ y,
                          int columns, float eps) {
    const float* row = x + (size_t)blockIdx.x * columns;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += row[i];
    float mean = block_sum(sum) / columns;
    float squares = 0.0f;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) {
        float d = row[i] - mean;
        squares += d * d;
    }
    float scale = rsqrtf(block_sum(squares) / columns + eps);
    float* out = y + (size_t)blockIdx.x * columns;
    for (int i = threadIdx.x; i < columns; i += blockDim.x)
        out[i] = (row[i] - mean) * scale * gamma[i] + beta[i];
}
