// expect: the offset is added after scaling
__global__ void scale_offset(const float* x, float scale, float offset,
                             float* out, int n) {
    int threads = gridDim.x * blockDim.x;
    int thread = blockIdx.x * blockDim.x + threadIdx.x;
    for (int i = thread; i < n; i += threads) {
        out[i] = scale * (x[i] + offset);
    }
}
