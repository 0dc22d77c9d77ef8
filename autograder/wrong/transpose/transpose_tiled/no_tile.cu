// expect: sectors
__global__ void transpose_tiled(const float* x, float* out, int rows,
                                int columns) {
    // No tile: right for every shape, and the stores are scattered.
    int column = blockIdx.x * 32 + threadIdx.x;
    int row = blockIdx.y * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8) {
        if (row + k < rows && column < columns) {
            out[column * rows + row + k] = x[(row + k) * columns + column];
        }
    }
}
