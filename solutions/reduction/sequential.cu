// The same tree, its working threads side by side: whole warps work, whole
// warps rest, and the lanes of a warp are in 32 different banks.

// [exercise:block_sum]
__global__ void block_sum(const float* x, float* out, int n) {
    __shared__ float part[256];
    // [hole]
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    part[t] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (int stride = blockDim.x / 2; stride > 0; stride /= 2) {
        if (t < stride) {
            part[t] += part[t + stride];
        }
        __syncthreads();
    }
    if (t == 0) {
        out[blockIdx.x] = part[0];
    }
    // [/hole]
}
// [/exercise]
