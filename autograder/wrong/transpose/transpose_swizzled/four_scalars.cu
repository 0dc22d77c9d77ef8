// expect: 128-bit
__global__ void transpose_swizzled(const float* x, float* out, int rows,
                                   int columns) {
    __shared__ float tile[32][33];
    for (int k = 0; k < 32; k += 8) {
        for (int j = 0; j < 32; j += 8) {
            int r = threadIdx.y + k, c = threadIdx.x + j;
            int row = blockIdx.x * 32 + r, column = blockIdx.y * 32 + c;
            if (row < rows && column < columns) {
                tile[r][c] = x[row * columns + column];
            }
        }
    }
    __syncthreads();
    for (int k = 0; k < 32; k += 8) {
        for (int j = 0; j < 32; j += 8) {
            int c = threadIdx.y + k, r = threadIdx.x + j;
            int row = blockIdx.y * 32 + c, column = blockIdx.x * 32 + r;
            if (row < columns && column < rows) {
                out[row * rows + column] = tile[r][c];
            }
        }
    }
}
