// expect: uninitialised read
__global__ void matmul_naive(const float* a, const float* b, float* c, int m,
                             int n, int k) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    int column = blockIdx.y * blockDim.y + threadIdx.y;
    if (row < m && column < n) {
        for (int i = 0; i < k; ++i) {
            c[row * n + column] += a[row * k + i] * b[i * n + column];
        }
    }
}
