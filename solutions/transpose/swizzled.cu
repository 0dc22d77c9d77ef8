// Transposes with 128-bit loads and stores. A row of the tile is eight groups
// of four floats, and group g of row r stands at place g ^ (r / 4): no byte is
// spent on padding, every group stays aligned to 16 bytes, and both ways
// through the tile are free of conflicts. blockIdx.x counts tiles down a column
// of x: blocks that run together write one stretch of out.

// [exercise:transpose_swizzled]
__global__ void transpose_swizzled(const float* x, float* out, int rows,
                                   int columns) {
    __shared__ float tile[32][32];
    // [hole]
    int group = threadIdx.x;  // 8 groups of four floats a row
    for (int k = 0; k < 32; k += 8) {
        int r = threadIdx.y + k;
        int row = blockIdx.x * 32 + r;
        int column = blockIdx.y * 32 + 4 * group;
        if (row < rows && column < columns) {
            float4 four = *reinterpret_cast<const float4*>(
                x + row * columns + column);
            int place = group ^ (r / 4);
            *reinterpret_cast<float4*>(&tile[r][4 * place]) = four;
        }
    }
    __syncthreads();
    for (int k = 0; k < 32; k += 8) {
        int c = threadIdx.y + k;  // a column of the tile, a row of out
        int row = blockIdx.y * 32 + c;
        int column = blockIdx.x * 32 + 4 * group;
        if (row < columns && column < rows) {
            // Rows 4 * group to 4 * group + 3 share one place: r / 4 is group.
            int at = 4 * ((c / 4) ^ group) + c % 4;
            const float* top = &tile[4 * group][at];
            *reinterpret_cast<float4*>(out + row * rows + column) =
                make_float4(top[0], top[32], top[64], top[96]);
        }
    }
    // [/hole]
}
// [/exercise]
