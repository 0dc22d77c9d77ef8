// expect: What does n / threads do with a remainder?
__global__ void scale_offset(const float* x, float scale, float offset,
                             float* out, int n) {
    int threads = gridDim.x * blockDim.x;
    int thread = blockIdx.x * blockDim.x + threadIdx.x;
    // The broken kernel itself, said in other words.
    int chunk = n / threads;
    int end = (thread + 1) * chunk;
    for (int i = thread * chunk; i < end; ++i) {
        out[i] = scale * x[i] + offset;
    }
}
