// expect: the machine code does not do what
__global__ void matmul_fast(const float* a, const float* b, float* c, int m, int n,
                            int k) {
    for (int e = threadIdx.x; e < 128 * 128; e += 256) {
        int row = blockIdx.y * 128 + e / 128, column = blockIdx.x * 128 + e % 128;
        if (row < m && column < n) {
            float sum = 0.0f;
            for (int i = 0; i < k; ++i) sum += a[row * k + i] * b[i * n + column];
            c[row * n + column] = sum;
        }
    }
}
