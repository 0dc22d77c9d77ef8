// expect: sectors a request
__global__ void matmul_coalesced(const float* a, const float* b, float* c,
                                 int m, int n, int k) {
    // Right, and neighbours of a warp still lie a row apart.
    int thread = threadIdx.y * 32 + threadIdx.x;
    int row = blockIdx.y * 8 + thread % 8;
    int column = blockIdx.x * 32 + thread / 8;
    if (row < m && column < n) {
        float sum = 0.0f;
        for (int i = 0; i < k; ++i) {
            sum += a[row * k + i] * b[i * n + column];
        }
        c[row * n + column] = sum;
    }
}
