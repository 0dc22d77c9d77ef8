// expect: wanted
#include <cuda_fp16.h>
__global__ void matmul_naive(const float* a, const float* b, float* c, int m,
                             int n, int k) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    int column = blockIdx.y * blockDim.y + threadIdx.y;
    if (row < m && column < n) {
        __half sum = __float2half(0.0f);
        for (int i = 0; i < k; ++i) {
            sum = __float2half(__half2float(sum) + a[row * k + i] * b[i * n + column]);
        }
        c[row * n + column] = __half2float(sum);
    }
}
