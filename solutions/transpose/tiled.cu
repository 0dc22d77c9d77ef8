// Transposes through a tile in shared memory: rows go in, columns come out,
// and both sides of global memory see neighbours. The columns of the tile are
// 32 floats apart, so all 32 loads of a warp meet in one bank.

// [exercise:transpose_tiled]
__global__ void transpose_tiled(const float* x, float* out, int rows,
                                int columns) {
    __shared__ float tile[32][32];
    // [hole]
    int column = blockIdx.x * 32 + threadIdx.x;
    int row = blockIdx.y * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8) {
        if (row + k < rows && column < columns) {
            tile[threadIdx.y + k][threadIdx.x] =
                x[(row + k) * columns + column];
        }
    }
    __syncthreads();
    column =
        blockIdx.y * 32 + threadIdx.x;  // of out, which has rows columns
    row = blockIdx.x * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8) {
        if (row + k < columns && column < rows) {
            out[(row + k) * rows + column] =
                tile[threadIdx.x][threadIdx.y + k];
        }
    }
    // [/hole]
}
// [/exercise]
