// expect: the clamp stops one too early
__global__ void scale_offset(const float* x, float scale, float offset,
                             float* out, int n) {
    int threads = gridDim.x * blockDim.x;
    int thread = blockIdx.x * blockDim.x + threadIdx.x;
    int chunk = (n + threads - 1) / threads;
    int first = thread * chunk;
    int end = min(first + chunk, n - 1);
    for (int i = first; i < end; ++i) {
        out[i] = scale * x[i] + offset;
    }
}
