// expect: wavefronts
__global__ void transpose_swizzled(const float* x, float* out, int rows,
                                   int columns) {
    __shared__ float tile[32][32];
    int group = threadIdx.x;
    for (int k = 0; k < 32; k += 8) {
        int r = threadIdx.y + k;
        int row = blockIdx.x * 32 + r, column = blockIdx.y * 32 + 4 * group;
        if (row < rows && column < columns) {
            float4 four = *reinterpret_cast<const float4*>(
                x + row * columns + column);
            int place = group;
            *reinterpret_cast<float4*>(&tile[r][4 * place]) = four;
        }
    }
    __syncthreads();
    for (int k = 0; k < 32; k += 8) {
        int c = threadIdx.y + k;
        int row = blockIdx.y * 32 + c, column = blockIdx.x * 32 + 4 * group;
        if (row < columns && column < rows) {
            int at = c;
            const float* top = &tile[4 * group][at];
            *reinterpret_cast<float4*>(out + row * rows + column) =
                make_float4(top[0], top[32], top[64], top[96]);
        }
    }
}
