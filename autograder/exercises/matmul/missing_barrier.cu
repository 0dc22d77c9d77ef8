// With one barrier a tile, a fast warp stores the next tile while a slow one
// still reads this one. Either a second barrier keeps it back, or two pairs of
// tiles take turns: then one is enough, and that is what the next rung does.

// [exercise:missing_barrier]
__global__ void missing_barrier(const float* a, const float* b, float* c,
                                int m, int n, int k) {
    __shared__ float left[32][32], right[32][32];
    int x = threadIdx.x, y = threadIdx.y;
    int row = blockIdx.y * 32 + y;
    int column = blockIdx.x * 32 + x;
    float sum = 0.0f;
    for (int start = 0; start < k; start += 32) {
        // [hole]
        // [broken]
        // bool in_a = row < m && start + x < k;
        // bool in_b = start + y < k && column < n;
        // left[y][x] = in_a ? a[row * k + start + x] : 0.0f;
        // right[y][x] = in_b ? b[(start + y) * n + column] : 0.0f;
        // __syncthreads();  // the tiles are ready: one barrier a tile
        // for (int i = 0; i < 32; ++i) {
        //     sum += left[y][i] * right[i][x];
        // }
        // [/broken]
        bool in_a = row < m && start + x < k;
        bool in_b = start + y < k && column < n;
        left[y][x] = in_a ? a[row * k + start + x] : 0.0f;
        right[y][x] = in_b ? b[(start + y) * n + column] : 0.0f;
        __syncthreads();
        for (int i = 0; i < 32; ++i) {
            sum += left[y][i] * right[i][x];
        }
        __syncthreads();
        // [/hole]
    }
    if (row < m && column < n) {
        c[row * n + column] = sum;
    }
}
// [/exercise]
