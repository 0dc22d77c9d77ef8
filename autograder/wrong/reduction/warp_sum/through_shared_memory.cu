// expect: Wanted were shuffles alone
__global__ void warp_sum(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = i < n ? x[i] : 0.0f;
    __shared__ float part[256];
    int t = threadIdx.x;
    part[t] = sum;
    __syncthreads();
    for (int stride = 16; stride > 0; stride /= 2) {
        if (t % 32 < stride) {
            part[t] += part[t + stride];
        }
        __syncthreads();
    }
    sum = part[t];
    if (threadIdx.x % 32 == 0) {
        out[i / 32] = sum;
    }
}
