// expect: holds no 128-bit load and store
__global__ void vector_add_vec4(const float* x, const float* y, float* out,
                                int n) {
    int thread = blockIdx.x * blockDim.x + threadIdx.x;
    int whole = n / 4;
    int first = 4 * thread;
    for (int i = first; i < min(first + 4, n); ++i) {
        out[i] = x[i] + y[i];
    }
}
