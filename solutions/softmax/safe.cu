// Three sweeps: the maximum, the sum of exp(x - maximum), the result. No weight
// is above 1, one of them is 1, and nothing overflows. The row is read thrice.

struct Sum {
    __device__ float operator()(float a, float b) const { return a + b; }
};
struct Maximum {
    __device__ float operator()(float a, float b) const {
        return fmaxf(a, b);
    }
};

// Folds a value of each of the block's 256 threads; all of them get the result.
// Each Op has a room of its own, so nobody overwrites what another still reads.
template <typename Op>
__device__ float block_fold(float value, Op fold) {
    __shared__ float room[8];
    for (int offset = 16; offset > 0; offset /= 2) {
        value = fold(value, __shfl_xor_sync(0xffffffff, value, offset));
    }
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = value;
    __syncthreads();
    value = room[0];
    for (int w = 1; w < 8; ++w) value = fold(value, room[w]);
    return value;
}

__global__ void softmax_safe(const float* x, float* out, int columns) {
    x += (size_t)blockIdx.x * columns;
    out += (size_t)blockIdx.x * columns;
    float maximum = -INFINITY, sum = 0.0f;
    for (int c = threadIdx.x; c < columns; c += 256) {
        maximum = fmaxf(maximum, x[c]);
    }
    maximum = block_fold(maximum, Maximum());
    for (int c = threadIdx.x; c < columns; c += 256) {
        sum += expf(x[c] - maximum);
    }
    sum = block_fold(sum, Sum());
    for (int c = threadIdx.x; c < columns; c += 256) {
        out[c] = expf(x[c] - maximum) / sum;
    }
}
