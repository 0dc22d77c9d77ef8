// Transposes with one thread an element. Threads that are neighbours along a
// row read neighbours and write elements a whole row of out apart.

__global__ void transpose_naive(const float* x, float* out, int rows,
                                int columns) {
    int column = blockIdx.x * 32 + threadIdx.x;
    int row = blockIdx.y * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8) {
        if (row + k < rows && column < columns) {
            out[column * rows + row + k] = x[(row + k) * columns + column];
        }
    }
}
