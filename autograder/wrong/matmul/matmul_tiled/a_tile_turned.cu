// expect: Inside every tile a is turned
__global__ void matmul_tiled(const float* a, const float* b, float* c,
                             int m, int n, int k) {
    __shared__ float a_tile[32][32];
    __shared__ float b_tile[32][32];
    int x = threadIdx.x, y = threadIdx.y;
    int row = blockIdx.y * 32 + y;
    int column = blockIdx.x * 32 + x;
    float sum = 0.0f;
    for (int first = 0; first < k; first += 32) {
        a_tile[x][y] = row < m && first + x < k ? a[row * k + first + x] : 0.0f;
        b_tile[y][x] = first + y < k && column < n ? b[(first + y) * n + column] : 0.0f;
        __syncthreads();
        for (int i = 0; i < 32; ++i) {
            sum += a_tile[y][i] * b_tile[i][x];
        }
        __syncthreads();
    }
    if (row < m && column < n) {
        c[row * n + column] = sum;
    }
}
