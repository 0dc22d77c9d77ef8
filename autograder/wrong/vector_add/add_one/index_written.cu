// expect: the value x[i] is wanted, not the index i
__global__ void add_one(const float* x, float* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = i + 1;
}
