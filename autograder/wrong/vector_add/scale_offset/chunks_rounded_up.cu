// expect: sectors a request
__global__ void scale_offset(const float* x, float scale, float offset,
                             float* out, int n) {
    // Right for every n, and the lanes of a warp stand a chunk apart.
    int threads = gridDim.x * blockDim.x;
    int thread = blockIdx.x * blockDim.x + threadIdx.x;
    int chunk = (n + threads - 1) / threads;
    int first = thread * chunk;
    for (int i = first; i < min(first + chunk, n); ++i) {
        out[i] = scale * x[i] + offset;
    }
}
