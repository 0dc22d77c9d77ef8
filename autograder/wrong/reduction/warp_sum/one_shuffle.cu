// expect: lanes 0 and 16
__global__ void warp_sum(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = i < n ? x[i] : 0.0f;
    sum += __shfl_down_sync(0xffffffff, sum, 16);
    if (threadIdx.x % 32 == 0) {
        out[i / 32] = sum;
    }
}
