// expect: 0 / 0 is NaN
__global__ void mean_abs(const float* x, float* out, int rows,
                         int columns) {
    int column = blockIdx.x * 32 + threadIdx.x;
    __shared__ float tile[32][33];
    float sum = 0.0f;
    if (column < columns) {
        for (int r = threadIdx.y; r < rows; r += 8 * 32) {
            float v[8];
            for (int k = 0; k < 8; ++k) {
                int at = r + k * 32;
                v[k] = at < rows ? x[(long long)at * columns + column] : 0;
            }
            for (int k = 0; k < 8; ++k) {
                sum += fabsf(v[k]);
            }
        }
    }
    tile[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    sum = tile[threadIdx.x][threadIdx.y];
    for (int offset = 16; offset > 0; offset /= 2) {
        sum += __shfl_down_sync(0xffffffff, sum, offset);
    }
    column = blockIdx.x * 32 + threadIdx.y;
    if (threadIdx.x == 0 && column < columns) {
        out[column] = sum / max(rows, 1);
    }
}
