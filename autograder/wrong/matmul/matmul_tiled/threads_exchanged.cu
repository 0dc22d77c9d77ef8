// expect: All elements of a tile of c are alike
__global__ void matmul_tiled(const float* a, const float* b, float* c,
                             int m, int n, int k) {
    __shared__ float a_tile[32][32];
    __shared__ float b_tile[32][32];
    int x = threadIdx.x, y = threadIdx.y;
    int row = blockIdx.y * 32 + x, column = blockIdx.x * 32 + y;
    float sum = 0.0f;
    for (int first = 0; first < k; first += 32) {
        // Past the edges stand zeros: they add nothing.
        bool in_a = row < m && first + x < k;
        bool in_b = first + y < k && column < n;
        a_tile[y][x] = in_a ? a[row * k + first + x] : 0.0f;
        b_tile[y][x] = in_b ? b[(first + y) * n + column] : 0.0f;
        __syncthreads();  // both tiles are whole
        for (int i = 0; i < 32; ++i) {
            sum += a_tile[y][i] * b_tile[i][x];
        }
        __syncthreads();  // nobody reads them any more
    }
    if (row < m && column < n) {
        c[row * n + column] = sum;
    }
}
