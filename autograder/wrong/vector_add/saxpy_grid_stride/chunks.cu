// expect: sectors a request
__global__ void saxpy(float a, const float* __restrict__ x,
                      const float* __restrict__ y, float* __restrict__ out,
                      int n) {
    // Right for every n, and the lanes of a warp stand a chunk apart.
    int threads = gridDim.x * blockDim.x;
    int thread = blockIdx.x * blockDim.x + threadIdx.x;
    int chunk = (n + threads - 1) / threads;
    int first = thread * chunk;
    for (int i = first; i < min(first + chunk, n); ++i) {
        out[i] = a * x[i] + y[i];
    }
}
