// expect: it writes outside of out, past its last element
__global__ void vector_add(const float* x, const float* y, float* out,
                           int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = x[i] + y[i];
}
