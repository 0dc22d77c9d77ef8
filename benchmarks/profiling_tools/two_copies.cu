// Two kernels that move the same bytes: one in the order of memory, one 32 apart.
// For Nsight Compute and Nsight Systems: nvcc -arch=native -lineinfo two_copies.cu

#include <cstdio>

__global__ void in_order(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        out[i] = x[i] + 1.0f;
    }
}

__global__ void far_apart(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        int rows = n / 32;
        out[i] = x[i % 32 * rows + i / 32] + 1.0f;
    }
}

int main() {
    int n = 1 << 26;
    float *x, *out;
    cudaMalloc(&x, n * sizeof(float));
    cudaMalloc(&out, n * sizeof(float));
    cudaMemset(x, 1, n * sizeof(float));
    in_order<<<n / 256, 256>>>(x, out, n);
    far_apart<<<n / 256, 256>>>(x, out, n);
    printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
    return 0;
}
