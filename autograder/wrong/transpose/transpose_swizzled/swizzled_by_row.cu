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
            int place = group ^ (r % 8);
            *reinterpret_cast<float4*>(&tile[r][4 * place]) = four;
        }
    }
    __syncthreads();
    for (int k = 0; k < 32; k += 8) {
        int c = threadIdx.y + k;
        int row = blockIdx.y * 32 + c, column = blockIdx.x * 32 + 4 * group;
        if (row < columns && column < rows) {
            float four[4];
            for (int j = 0; j < 4; ++j) {
                int r = 4 * group + j;
                four[j] = tile[r][4 * ((c / 4) ^ (r % 8)) + c % 4];
            }
            *reinterpret_cast<float4*>(out + row * rows + column) =
                make_float4(four[0], four[1], four[2], four[3]);
        }
    }
}
