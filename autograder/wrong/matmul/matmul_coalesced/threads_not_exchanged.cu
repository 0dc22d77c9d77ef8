// expect: Of every 32 columns only 8
__global__ void matmul_coalesced(const float* a, const float* b, float* c,
                                 int m, int n, int k) {
    int row = blockIdx.y * blockDim.y + threadIdx.x;
    int column = blockIdx.x * blockDim.x + threadIdx.y;
    if (row < m && column < n) {
        float sum = 0.0f;
        for (int i = 0; i < k; ++i) {
            sum += a[row * k + i] * b[i * n + column];
        }
        c[row * n + column] = sum;
    }
}
