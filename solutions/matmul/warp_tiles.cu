// 8 x 8 sums a thread, 64 x 32 a warp. How the lanes of a warp stand decides how many
// of them ask for the same 16 bytes, and so what a load costs.

// [exercise:matmul_warp_tiles]
// n and k: multiples of 4. A block of 256 threads has 128 x 128 elements of c.
__global__ void __launch_bounds__(256, 2)
    matmul_warp_tiles(const float* a, const float* b, float* c, int m,
                      int n, int k) {
    __shared__ alignas(16) float a_tile[8][128 + 4];  // [i][row]: turned
    __shared__ alignas(16) float b_tile[8][128];
    int top = blockIdx.y * 128, left = blockIdx.x * 128;
    // What this thread brings of each tile: four floats of a row.
    int a_row = threadIdx.x / 2, a_i = threadIdx.x % 2 * 4;
    int b_i = threadIdx.x / 32, b_column = threadIdx.x % 32 * 4;
    const float* a_from = a + (top + a_row) * k + a_i;
    const float* b_from = b + b_i * n + left + b_column;
    // Its first row and column of c, counted from the block's corner.
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    // [hole]
    int row = warp / 4 * 64 + (lane / 2 % 2 + lane / 8 * 2) * 4;
    int column = warp % 4 * 32 + (lane % 2 + lane / 4 % 2 * 2) * 4;
    // [/hole]
    float sums[8][8] = {};
    for (int first = 0; first < k; first += 8) {
        float4 a_next = make_float4(0.0f, 0.0f, 0.0f, 0.0f),
               b_next = a_next;
        if (top + a_row < m && first + a_i < k) {
            a_next = *reinterpret_cast<const float4*>(a_from + first);
        }
        if (first + b_i < k && left + b_column < n) {
            b_next = *reinterpret_cast<const float4*>(b_from + first * n);
        }
        a_tile[a_i][a_row] = a_next.x;
        a_tile[a_i + 1][a_row] = a_next.y;
        a_tile[a_i + 2][a_row] = a_next.z;
        a_tile[a_i + 3][a_row] = a_next.w;
        *reinterpret_cast<float4*>(&b_tile[b_i][b_column]) = b_next;
        __syncthreads();
        // [hole]
        for (int i = 0; i < 8; ++i) {
            float down[8], across[8];
            for (int g = 0; g < 2; ++g) {
                *reinterpret_cast<float4*>(&down[4 * g]) =
                    *reinterpret_cast<float4*>(&a_tile[i][row + 32 * g]);
                *reinterpret_cast<float4*>(&across[4 * g]) =
                    *reinterpret_cast<float4*>(
                        &b_tile[i][column + 16 * g]);
            }
            for (int r = 0; r < 8; ++r) {
                for (int s = 0; s < 8; ++s)
                    sums[r][s] += down[r] * across[s];
            }
        }
        // [/hole]
        __syncthreads();
    }
    // [hole]
    for (int r = 0; r < 8; ++r) {
        int to = top + row + r / 4 * 32 + r % 4;
        for (int g = 0; g < 2; ++g) {
            int at = left + column + 16 * g;
            if (to < m && at < n) {
                *reinterpret_cast<float4*>(c + to * n + at) =
                    *reinterpret_cast<float4*>(&sums[r][4 * g]);
            }
        }
    }
    // [/hole]
}
// [/exercise]
