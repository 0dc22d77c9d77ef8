// expect: it writes outside of out, past its last element
__global__ void saxpy(float a, const float* __restrict__ x,
                      const float* __restrict__ y, float* __restrict__ out,
                      int n) {
    int stride = gridDim.x * blockDim.x;
    int first = blockIdx.x * blockDim.x + threadIdx.x;
    for (int i = first; i <= n; i += stride) {
        out[i] = a * x[i] + y[i];
    }
}
