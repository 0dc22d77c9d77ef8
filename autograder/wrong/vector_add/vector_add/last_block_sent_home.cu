// expect: not all of them
__global__ void vector_add(const float* x, const float* y, float* out,
                           int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if ((blockIdx.x + 1) * blockDim.x <= n) {
        out[i] = x[i] + y[i];
    }
}
