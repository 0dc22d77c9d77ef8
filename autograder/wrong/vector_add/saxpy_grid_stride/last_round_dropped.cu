// expect: The last, incomplete round is missing
__global__ void saxpy(float a, const float* __restrict__ x,
                      const float* __restrict__ y, float* __restrict__ out,
                      int n) {
    int stride = gridDim.x * blockDim.x;
    int rounds = n / stride;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int round = 0; round < rounds; ++round, i += stride) {
        out[i] = a * x[i] + y[i];
    }
}
