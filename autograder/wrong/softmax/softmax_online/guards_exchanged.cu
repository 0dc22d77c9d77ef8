// expect: Nothing is ever seen
struct Running {
    float maximum, total;  // total: the sum of exp(x - maximum) so far
};

__device__ Running merge(Running a, Running b) {
    Running both = a;
    // Nothing seen yet: -inf - -inf would be NaN.
    if (a.maximum == -INFINITY) return a;
    if (b.maximum == -INFINITY) return b;
    both.maximum = fmaxf(a.maximum, b.maximum);
    both.total = a.total * expf(a.maximum - both.maximum) +
                 b.total * expf(b.maximum - both.maximum);
    return both;
}

__global__ void softmax_online(const float* x, float* out, int columns) {
    __shared__ Running room[8];  // one of each warp
    x += (size_t)blockIdx.x * columns;
    out += (size_t)blockIdx.x * columns;
    int t = threadIdx.x;
    Running mine = {-INFINITY, 0.0f};
    for (int c = t; c < columns; c += 256) {
        mine = merge(mine, {x[c], 1.0f});
    }
    for (int offset = 16; offset > 0; offset /= 2) {
        mine =
            merge(mine, {__shfl_xor_sync(0xffffffff, mine.maximum, offset),
                         __shfl_xor_sync(0xffffffff, mine.total, offset)});
    }
    if (t % 32 == 0) room[t / 32] = mine;
    __syncthreads();
    mine = room[0];
    for (int w = 1; w < 8; ++w) mine = merge(mine, room[w]);
    for (int c = t; c < columns; c += 256) {
        out[c] = expf(x[c] - mine.maximum) / mine.total;
    }
}
