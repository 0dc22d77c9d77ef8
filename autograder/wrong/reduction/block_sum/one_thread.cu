// expect: active lane a request
__global__ void block_sum(const float* x, float* out, int n) {
    __shared__ float part[256];
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    part[t] = i < n ? x[i] : 0.0f;
    __syncthreads();
    if (t == 0) {
        for (int k = 1; k < blockDim.x; ++k) {
            part[0] += part[k];
        }
    }
    if (t == 0) {
        out[blockIdx.x] = part[0];
    }
}
