// The guard is missing: 1,000 elements, 1,024 threads. For compute-sanitizer.

#include <cstdio>

__global__ void add_one(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = x[i] + 1.0f;
}

int main() {
    int n = 1000;
    float *x, *out;
    cudaMalloc(&x, n * sizeof(float));
    cudaMalloc(&out, n * sizeof(float));
    cudaMemset(x, 0, n * sizeof(float));
    add_one<<<4, 256>>>(x, out, n);
    printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
    return 0;
}
