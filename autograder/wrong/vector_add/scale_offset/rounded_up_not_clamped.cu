// expect: it writes outside of out, past its last element
__global__ void scale_offset(const float* x, float scale, float offset,
                             float* out, int n) {
    int threads = gridDim.x * blockDim.x;
    int thread = blockIdx.x * blockDim.x + threadIdx.x;
    int chunk = (n + threads - 1) / threads;
    int first = thread * chunk;
    for (int i = first; i < first + chunk; ++i) {
        out[i] = scale * x[i] + offset;
    }
}
