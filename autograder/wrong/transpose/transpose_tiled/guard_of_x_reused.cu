// expect: uninitialised read on line
__global__ void transpose_tiled(const float* x, float* out, int rows,
                                int columns) {
    __shared__ float tile[32][32];
    int column = blockIdx.x * 32 + threadIdx.x;
    int row = blockIdx.y * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8) {
        if (row + k < rows && column < columns) {
            tile[threadIdx.y + k][threadIdx.x] = x[(row + k) * columns + column];
        }
    }
    __syncthreads();
    column = blockIdx.y * 32 + threadIdx.x;
    row = blockIdx.x * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8) {
        if (row + k < rows && column < columns) {
            out[(row + k) * rows + column] = tile[threadIdx.x][threadIdx.y + k];
        }
    }
}
