// One thread an element of c, as the formula says it: rows first. Neighbouring
// threads are neighbours down a column, a whole row of a and of c apart, so
// every lane has a sector of its own.

// [exercise:matmul_naive]
__global__ void matmul_naive(const float* a, const float* b, float* c,
                             int m, int n, int k) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    int column = blockIdx.y * blockDim.y + threadIdx.y;
    // [hole]
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
