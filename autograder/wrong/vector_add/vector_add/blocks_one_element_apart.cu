// expect: multiply blockIdx.x by blockDim.x
__global__ void vector_add(const float* x, const float* y, float* out,
                           int n) {
    int i = blockIdx.x + threadIdx.x;
    if (i < n) {
        out[i] = x[i] + y[i];
    }
}
