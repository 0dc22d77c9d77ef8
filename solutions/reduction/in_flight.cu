// A thread asks for LOADS elements before it adds any of them. The grid is as
// large as the machine, and all of it moves on together until the end.

template <int LOADS>
__global__ void sum_in_flight(const float* x, float* out, int n) {
    int thread = blockIdx.x * blockDim.x + threadIdx.x;
    int stride = gridDim.x * blockDim.x;
    float sum = 0.0f;
#pragma unroll 1
    for (int i = thread; i < n; i += LOADS * stride) {
        float v[LOADS];
#pragma unroll
        for (int k = 0; k < LOADS; ++k) {
            int j = i + k * stride;
            v[k] = j < n ? x[j] : 0.0f;  // asked for, not waited for
        }
#pragma unroll
        for (int k = 0; k < LOADS; ++k) {
            sum += v[k];
        }
    }
    for (int offset = 16; offset > 0; offset /= 2) {
        sum += __shfl_down_sync(0xffffffff, sum, offset);
    }
    if (threadIdx.x % 32 == 0) {
        out[thread / 32] = sum;
    }
}
