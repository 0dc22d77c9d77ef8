// expect: sectors a request
__global__ void vector_add(const float* x, const float* y, float* out,
                           int n) {
    // Every element has one owner, and neighbours have far apart ones.
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    int threads = gridDim.x * blockDim.x;
    int i = t % 32 * (threads / 32) + t / 32;
    if (i < n) {
        out[i] = x[i] + y[i];
    }
}
