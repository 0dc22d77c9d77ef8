// expect: it writes outside of out, past its last element
__global__ void add_one(const float* x, float* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x + 1;
    out[i] = x[i] + 1.0f;
}
