// expect: each thread adds only one
__global__ void vector_add_vec4(const float* x, const float* y, float* out,
                                int n) {
    int thread = blockIdx.x * blockDim.x + threadIdx.x;
    int whole = n / 4;
    if (thread < n) {
        out[thread] = x[thread] + y[thread];
    }
}
