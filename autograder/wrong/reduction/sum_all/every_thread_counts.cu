// expect: Does one thread of each block count
__device__ float partials[4096];      // one a block
__device__ unsigned int arrived = 0;  // blocks that have left theirs

__device__ float sum_block(float sum) {  // a block's sum, in thread 0
    __shared__ float part[32];
    for (int offset = 16; offset > 0; offset /= 2) {
        sum += __shfl_down_sync(0xffffffff, sum, offset);
    }
    __syncthreads();  // of an earlier sum, all have read
    if (threadIdx.x % 32 == 0) {
        part[threadIdx.x / 32] = sum;
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0.0f;
        for (int offset = 16; offset > 0; offset /= 2) {
            sum += __shfl_down_sync(0xffffffff, sum, offset);
        }
    }
    return sum;
}

__global__ void sum_all(const float* x, float* out, int n) {
    const float4* fours = reinterpret_cast<const float4*>(x);
    const int stride = gridDim.x * blockDim.x;
    const int thread = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
    int i = thread;
    for (; i + 3 * stride < n / 4; i += 4 * stride) {
        float4 v[4];
        for (int k = 0; k < 4; ++k) {
            v[k] = fours[i + k * stride];  // all on their way at once
        }
        for (int k = 0; k < 4; ++k) {
            sum += (v[k].x + v[k].y) + (v[k].z + v[k].w);
        }
    }
    for (; i < n / 4; i += stride) {
        sum += (fours[i].x + fours[i].y) + (fours[i].z + fours[i].w);
    }
    int last_few = n / 4 * 4 + thread;
    if (last_few < n) {
        sum += x[last_few];
    }
    sum = sum_block(sum);

    __shared__ bool last;
    if (threadIdx.x == 0) partials[blockIdx.x] = sum;
    __threadfence();
    last = atomicAdd(&arrived, 1u) == gridDim.x - 1;
    __syncthreads();
    if (last) {
        __threadfence();
        sum = 0.0f;
        for (int b = threadIdx.x; b < gridDim.x; b += blockDim.x) {
            sum += __ldcg(&partials[b]);
        }
        sum = sum_block(sum);
        if (threadIdx.x == 0) {
            out[0] = sum;
            arrived = 0;  // ready for the next launch
        }
    }
}
