// expect: distance from the new mean
struct Summary {
    float count, mean, m2;  // m2: the sum of (x - mean) squared
};

__device__ Summary combine(Summary a, Summary b) {
    Summary both = a;
    both.count = a.count + b.count;
    if (both.count > 0.0f) {
        float delta = b.mean - a.mean;
        float share = b.count / both.count;
        both.mean = a.mean + delta * share;
        delta = b.mean - both.mean;
        both.m2 = a.m2 + b.m2 + delta * delta * a.count * share;
    }
    return both;
}

__global__ void welford_combine(const float* a, const float* b, float* out,
                                int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        Summary both = combine({a[3 * i], a[3 * i + 1], a[3 * i + 2]},
                               {b[3 * i], b[3 * i + 1], b[3 * i + 2]});
        out[3 * i] = both.count;
        out[3 * i + 1] = both.mean;
        out[3 * i + 2] = both.m2;
    }
}
