// expect: Only the first block's 256 elements are written
__global__ void vector_add(const float* x, const float* y, float* out,
                           int n) {
    int i = threadIdx.x;
    if (i < n) {
        out[i] = x[i] + y[i];
    }
}
