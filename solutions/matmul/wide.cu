// 4 x 4 sums a thread, side by side, and 16 bytes an instruction: a's tile is turned,
// so that what a step needs of it lies in a row, as it does in b's.

// [exercise:matmul_wide]
// n and k: multiples of 4.
__global__ void matmul_wide(const float* a, const float* b, float* c,
                            int m, int n, int k) {
    // Rows four floats longer keep the turned stores in more banks.
    __shared__ alignas(16) float a_tile[16][64 + 4];  // [i][row]: turned
    __shared__ alignas(16) float b_tile[16][64];
    int x = threadIdx.x, y = threadIdx.y, e = y * 16 + x;
    int row = blockIdx.y * 64 + 4 * y, column = blockIdx.x * 64 + 4 * x;
    // What this thread brings of each tile: four floats of a row.
    int a_row = e / 4, a_i = e % 4 * 4, b_i = e / 16,
        b_column = e % 16 * 4;
    int from_row = blockIdx.y * 64 + a_row;
    int from_column = blockIdx.x * 64 + b_column;
    float sums[4][4] = {};
    for (int first = 0; first < k; first += 16) {
        float4 four = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (first + b_i < k && from_column < n) {
            four = *reinterpret_cast<const float4*>(b + (first + b_i) * n +
                                                    from_column);
        }
        *reinterpret_cast<float4*>(&b_tile[b_i][b_column]) = four;
        // [hole]
        four = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (from_row < m && first + a_i < k) {
            four = *reinterpret_cast<const float4*>(a + from_row * k +
                                                    first + a_i);
        }
        a_tile[a_i][a_row] = four.x;
        a_tile[a_i + 1][a_row] = four.y;
        a_tile[a_i + 2][a_row] = four.z;
        a_tile[a_i + 3][a_row] = four.w;
        // [/hole]
        __syncthreads();
        // [hole]
        for (int i = 0; i < 16; ++i) {
            float down[4], across[4];
            *reinterpret_cast<float4*>(down) =
                *reinterpret_cast<float4*>(&a_tile[i][4 * y]);
            *reinterpret_cast<float4*>(across) =
                *reinterpret_cast<float4*>(&b_tile[i][4 * x]);
            for (int r = 0; r < 4; ++r) {
                for (int s = 0; s < 4; ++s)
                    sums[r][s] += down[r] * across[s];
            }
        }
        // [/hole]
        __syncthreads();
    }
    // [hole]
    for (int r = 0; r < 4; ++r) {
        if (row + r < m && column < n) {
            *reinterpret_cast<float4*>(c + (row + r) * n + column) =
                *reinterpret_cast<float4*>(sums[r]);
        }
    }
    // [/hole]
}
// [/exercise]
