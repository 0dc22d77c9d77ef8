// The same sums in the same order; only the names of the threads change. Along
// a warp the column grows: one element of a for all lanes, 32 neighbours of b.

// [exercise:matmul_coalesced]
__global__ void matmul_coalesced(const float* a, const float* b, float* c,
                                 int m, int n, int k) {
    // [hole]
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < m && column < n) {
        float sum = 0.0f;
        for (int i = 0; i < k; ++i) {
            sum += a[row * k + i] * b[i * n + column];
        }
        c[row * n + column] = sum;
    }
    // [/hole]
}
// [/exercise]
