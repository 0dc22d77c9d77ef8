// expect: race
__global__ void block_sum(const float* x, float* out, int n) {
    __shared__ float part[256];
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    part[t] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (int stride = blockDim.x / 2; stride > 32; stride /= 2) {
        if (t < stride) {
            part[t] += part[t + stride];
        }
        __syncthreads();
    }
    if (t < 32) {
        volatile float* v = part;
        v[t] += v[t + 32];
        v[t] += v[t + 16];
        v[t] += v[t + 8];
        v[t] += v[t + 4];
        v[t] += v[t + 2];
        v[t] += v[t + 1];
    }
    if (t == 0) {
        out[blockIdx.x] = part[0];
    }
}
