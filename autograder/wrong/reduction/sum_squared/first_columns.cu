// expect: first 256 columns
__global__ void sum_squared(const float* x, float* out, int columns) {
    const float* row = x + (long long)blockIdx.x * columns;
    __shared__ float part[8];
    float sum = 0.0f;
    int c = threadIdx.x;
    if (c < columns) {
        sum = row[c] * row[c];
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
