// A tree in shared memory whose working threads lie further and further apart.

__global__ void tree_interleaved(const float* x, float* out, int n) {
    __shared__ float part[256];
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    part[t] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (int stride = 1; stride < blockDim.x; stride *= 2) {
        if ((t & (2 * stride - 1)) == 0) {  // a multiple of 2 * stride
            part[t] += part[t + stride];
        }
        __syncthreads();
    }
    if (t == 0) {
        out[blockIdx.x] = part[0];
    }
}
