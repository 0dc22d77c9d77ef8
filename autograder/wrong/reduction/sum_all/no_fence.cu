// expect: __threadfence() and then count itself
__device__ float partials[4096];      // one a block
__device__ unsigned int arrived = 0;  // blocks that have left theirs

__device__ float sum_block(float sum) {  // a block's sum, in thread 0
    __shared__ float part[8];
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(0xffffffff, sum, offset);
    __syncthreads();
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = threadIdx.x < 8 ? part[threadIdx.x] : 0.0f;
        for (int offset = 4; offset > 0; offset /= 2) sum += __shfl_down_sync(0xffffffff, sum, offset);
    }
    return sum;
}

__global__ void sum_all(const float* x, float* out, int n) {
    __shared__ bool last;
    int thread = blockIdx.x * blockDim.x + threadIdx.x;
    int threads = gridDim.x * blockDim.x;
    const float4* x4 = reinterpret_cast<const float4*>(x);
    float sum = 0.0f;
    for (int i = thread; i < n / 4; i += threads) {
        float4 v = x4[i];
        sum += (v.x + v.y) + (v.z + v.w);
    }
    if (thread < n % 4) sum += x[n / 4 * 4 + thread];
    sum = sum_block(sum);
    if (threadIdx.x == 0) {
        partials[blockIdx.x] = sum;
        last = atomicAdd(&arrived, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (last) {
        sum = 0.0f;
        for (int b = threadIdx.x; b < gridDim.x; b += blockDim.x) sum += __ldcg(&partials[b]);
        sum = sum_block(sum);
        if (threadIdx.x == 0) {
            out[0] = sum;
            arrived = 0;
        }
    }
}
