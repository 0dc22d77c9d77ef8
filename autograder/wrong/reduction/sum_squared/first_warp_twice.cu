// expect: in the sums twice
__global__ void sum_squared(const float* x, float* out, int columns) {
    const float* row = x + (long long)blockIdx.x * columns;
    __shared__ float part[8];
    int t = threadIdx.x;
    float sum = 0.0f;
    for (int c = t; c < columns; c += blockDim.x) {
        sum += row[c] * row[c];
    }
    for (int offset = 16; offset > 0; offset /= 2) {
        sum += __shfl_down_sync(0xffffffff, sum, offset);
    }
    if (t % 32 == 0) part[t / 32] = sum;
    __syncthreads();
    if (t == 0) {
        for (int w = 0; w < 8; ++w) sum += part[w];
        out[blockIdx.x] = sum;
    }
}
