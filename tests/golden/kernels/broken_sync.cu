// Kernels whose threads do not meet where they should.

__global__ void divergent_barrier(const float* x, float* out) {
    __shared__ float tile[64];
    tile[threadIdx.x] = x[threadIdx.x];
    if (threadIdx.x < 40) {
        __syncthreads();
    }
    out[threadIdx.x] = tile[threadIdx.x];
}

__global__ void early_exit(const float* x, float* out, int n) {
    __shared__ float tile[64];
    if (threadIdx.x >= n) return;
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = tile[n - 1 - threadIdx.x];
}

__global__ void absent_lane(const float* x, float* out) {
    float v = x[threadIdx.x];
    if (threadIdx.x < 24) v += __shfl_down_sync(0xffffffff, v, 4);
    out[threadIdx.x] = v;
}
