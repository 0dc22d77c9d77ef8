// expect: over 32 columns, and not over 32 rows
__global__ void mean_abs(const float* x, float* out, int rows,
                         int columns) {
    int column = blockIdx.x * 32 + threadIdx.x;
    __shared__ float tile[32][33];
    float sum = 0.0f;
    if (column < columns) {
        for (int r = threadIdx.y; r < rows; r += 32) {
            sum += fabsf(x[r * columns + column]);
        }
    }
    tile[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    sum = tile[threadIdx.y][threadIdx.x];
    for (int offset = 16; offset > 0; offset /= 2) {
        sum += __shfl_down_sync(0xffffffff, sum, offset);
    }
    int c = blockIdx.x * 32 + threadIdx.y;
    if (threadIdx.x == 0 && c < columns) out[c] = sum / rows;
}
