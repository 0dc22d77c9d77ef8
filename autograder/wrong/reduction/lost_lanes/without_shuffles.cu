// expect: the shuffles are gone
__global__ void lost_lanes(const float* x, float* out, int n) {
    __shared__ float part[8];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
    if (threadIdx.x % 32 == 0) {
        for (int k = i; k < i + 32 && k < n; ++k) {
            sum += x[k];
        }
        part[threadIdx.x / 32] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int warp = 1; warp < 8; ++warp) {
            sum += part[warp];
        }
        out[blockIdx.x] = sum;
    }
}
