// expect: columns / 256 is rounded down
__global__ void sum_squared(const float* x, float* out, int columns) {
    const float* row = x + (long long)blockIdx.x * columns;
    __shared__ float part[8];
    int t = threadIdx.x;
    float sum = 0.0f;
    int stretch = columns / 256;
    for (int c = t * stretch; c < (t + 1) * stretch; ++c) {
        sum += row[c] * row[c];
    }
    for (int offset = 16; offset > 0; offset /= 2) {
        sum += __shfl_down_sync(0xffffffff, sum, offset);
    }
    if (t % 32 == 0) part[t / 32] = sum;
    __syncthreads();
    if (t < 32) {
        sum = t < 8 ? part[t] : 0.0f;
        for (int offset = 4; offset > 0; offset /= 2) {
            sum += __shfl_down_sync(0xffffffff, sum, offset);
        }
        if (t == 0) out[blockIdx.x] = sum;
    }
}
