// With one barrier a tile, a fast warp stores the next tile while a slow one
// still reads this one. Either a second barrier keeps it back, or two pairs of
// tiles take turns: then one is enough, and that is what the next rung does.

// [exercise:missing_barrier]
__global__ void missing_barrier(const float* a, const float* b, float* c,
                                int m, int n, int k) {
    __shared__ float a_tile[32][32];
    __shared__ float b_tile[32][32];
    int x = threadIdx.x, y = threadIdx.y;
    int row = blockIdx.y * 32 + y, column = blockIdx.x * 32 + x;
    float sum = 0.0f;
    for (int first = 0; first < k; first += 32) {
        // [hole]
        // [broken]
        // bool in_a = row < m && first + x < k;
        // bool in_b = first + y < k && column < n;
        // a_tile[y][x] = in_a ? a[row * k + first + x] : 0.0f;
        // b_tile[y][x] = in_b ? b[(first + y) * n + column] : 0.0f;
        // __syncthreads();  // the tiles are ready: one barrier a tile
        // for (int i = 0; i < 32; ++i) {
        //     sum += a_tile[y][i] * b_tile[i][x];
        // }
        // [/broken]
        bool in_a = row < m && first + x < k;
        bool in_b = first + y < k && column < n;
        a_tile[y][x] = in_a ? a[row * k + first + x] : 0.0f;
        b_tile[y][x] = in_b ? b[(first + y) * n + column] : 0.0f;
        __syncthreads();
        for (int i = 0; i < 32; ++i) {
            sum += a_tile[y][i] * b_tile[i][x];
        }
        __syncthreads();
        // [/hole]
    }
    if (row < m && column < n) {
        c[row * n + column] = sum;
    }
}
// [/exercise]
