// expect: goes on by 8 * blockDim.x
__global__ void sum_squared(const float* x, float* out, int columns) {
    const float* row = x + (long long)blockIdx.x * columns;
    __shared__ float part[8];
    float sum = 0.0f;
    for (int c = threadIdx.x; c < columns; c += blockDim.x) {
        float v[8];
        for (int k = 0; k < 8; ++k) {
            int at = c + k * blockDim.x;
            v[k] = at < columns ? row[at] : 0.0f;
        }
        for (int k = 0; k < 8; ++k) {
            sum += v[k] * v[k];
        }
    }
    for (int offset = 16; offset > 0; offset /= 2) {
        sum += __shfl_down_sync(0xffffffff, sum, offset);
    }
    if (threadIdx.x % 32 == 0) {
        part[threadIdx.x / 32] = sum;
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = threadIdx.x < 8 ? part[threadIdx.x] : 0.0f;
        for (int offset = 4; offset > 0; offset /= 2) {
            sum += __shfl_down_sync(0xffffffff, sum, offset);
        }
        if (threadIdx.x == 0) {
            out[blockIdx.x] = sum;
        }
    }
}
