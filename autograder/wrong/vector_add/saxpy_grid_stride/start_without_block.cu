// expect: Every block starts at the same elements
__global__ void saxpy(float a, const float* __restrict__ x,
                      const float* __restrict__ y, float* __restrict__ out,
                      int n) {
    int stride = gridDim.x * blockDim.x;
    for (int i = threadIdx.x; i < n; i += stride) {
        out[i] = a * x[i] + y[i];
    }
}
