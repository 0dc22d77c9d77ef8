// expect: dweight gathers dy * x
// Adds a value of each of the block's 256 threads; all of them get the sum.
__device__ float block_sum(float value) {
    __shared__ float room[8];
    for (int offset = 16; offset > 0; offset /= 2) {
        value += __shfl_xor_sync(0xffffffff, value, offset);
    }
    __syncthreads();  // all have read the last sum
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = value;
    __syncthreads();
    value = room[threadIdx.x % 8];
    for (int offset = 4; offset > 0; offset /= 2) {
        value += __shfl_xor_sync(0xffffffff, value, offset);
    }
    return value;
}

__global__ void layer_norm_backward(const float* x, const float* dy,
                                    const float* weight, const float* mean,
                                    const float* rstd, float* dx,
                                    float* dweight, float* dbias, int rows,
                                    int columns) {
    float dw[4] = {}, db[4] = {};  // this thread's columns, over the rows
    for (int row = blockIdx.x; row < rows; row += gridDim.x) {
        float h[4] = {}, g[4] = {}, sum_g = 0.0f, sum_gh = 0.0f;
        float m = mean[row], r = rstd[row];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            int c = threadIdx.x + 256 * k;
            if (c < columns) {
                float d = dy[row * columns + c];
                h[k] = (x[row * columns + c] - m) * r;
                g[k] = d * weight[c];
                dw[k] += d * x[row * columns + c];
                db[k] += d;
                sum_g += g[k];
                sum_gh += g[k] * h[k];
            }
        }
        sum_g = block_sum(sum_g) / columns;
        sum_gh = block_sum(sum_gh) / columns;
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            int c = threadIdx.x + 256 * k;
            if (c < columns) {
                dx[row * columns + c] = r * (g[k] - sum_g - h[k] * sum_gh);
            }
        }
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        int c = threadIdx.x + 256 * k;
        if (c < columns) {
            dweight[blockIdx.x * columns + c] = dw[k];
            dbias[blockIdx.x * columns + c] = db[k];
        }
    }
}
