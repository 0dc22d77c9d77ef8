// expect: lane 0's own value
__global__ void warp_sum(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = i < n ? x[i] : 0.0f;
    if (threadIdx.x % 32 == 0) {
        out[i / 32] = sum;
    }
}
