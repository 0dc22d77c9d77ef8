// expect: sectors
__global__ void mean_abs(const float* x, float* out, int rows,
                         int columns) {
    // A warp goes down one column: its lanes lie a whole row apart.
    int column = blockIdx.x * 32 + threadIdx.y;
    float sum = 0.0f;
    if (column < columns) {
        for (int r = threadIdx.x; r < rows; r += 32) {
            sum += fabsf(x[(long long)r * columns + column]);
        }
    }
    for (int offset = 16; offset > 0; offset /= 2) {
        sum += __shfl_down_sync(0xffffffff, sum, offset);
    }
    if (threadIdx.x == 0 && column < columns) {
        out[column] = sum / rows;
    }
}
