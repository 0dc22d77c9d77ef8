// expect: The blocks' sides are exchanged
__global__ void matmul_coalesced(const float* a, const float* b, float* c,
                                 int m, int n, int k) {
    int row = blockIdx.y * blockDim.x + threadIdx.y;
    int column = blockIdx.x * blockDim.y + threadIdx.x;
    if (row < m && column < n) {
        float sum = 0.0f;
        for (int i = 0; i < k; ++i) {
            sum += a[row * k + i] * b[i * n + column];
        }
        c[row * n + column] = sum;
    }
}
