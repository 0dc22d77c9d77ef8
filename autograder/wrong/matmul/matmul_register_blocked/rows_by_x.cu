// expect: and x counts columns
__global__ void matmul_register_blocked(const float* a, const float* b,
                                        float* c, int m, int n, int k) {
    __shared__ float a_tile[64][16];
    __shared__ float b_tile[16][64];
    int x = threadIdx.x, y = threadIdx.y;  // 16 x 16 threads
    int top = blockIdx.y * 64, left = blockIdx.x * 64;
    float sums[4][4] = {};
    for (int first = 0; first < k; first += 16) {
        for (int e = y * 16 + x; e < 64 * 16; e += 256) {
            int row = top + e / 16, i = first + e % 16;
            bool inside = row < m && i < k;
            a_tile[e / 16][e % 16] = inside ? a[row * k + i] : 0.0f;
        }
        for (int e = y * 16 + x; e < 16 * 64; e += 256) {
            int i = first + e / 64, column = left + e % 64;
            bool inside = i < k && column < n;
            b_tile[e / 64][e % 64] = inside ? b[i * n + column] : 0.0f;
        }
        __syncthreads();
        for (int i = 0; i < 16; ++i) {
            float down[4], across[4];
            for (int r = 0; r < 4; ++r) {
                down[r] = a_tile[x + 16 * r][i];
                across[r] = b_tile[i][x + 16 * r];
            }
            for (int r = 0; r < 4; ++r) {
                for (int s = 0; s < 4; ++s) {
                    sums[r][s] += down[r] * across[s];
                }
            }
        }
        __syncthreads();
    }
    for (int r = 0; r < 4; ++r) {
        for (int s = 0; s < 4; ++s) {
            int row = top + y + 16 * r, column = left + x + 16 * s;
            if (row < m && column < n) {
                c[row * n + column] = sums[r][s];
            }
        }
    }
}
