// The detective of chapter 9: a warp a query, each lane its own share of the
// keys. What is added up from two lanes must first be relative to one maximum.

// [exercise:wrong_rescale]
constexpr int D = 64;

// Launch: q_len blocks of 32 threads, a query each. Lane l takes keys
// l, l + 32, …; then the 32 partial results become one.
__global__ void wrong_rescale(const float* q, const float* k,
                              const float* v, float* out, int kv_len,
                              float scale) {
    int lane = threadIdx.x;
    q += blockIdx.x * D;
    float sum[D] = {}, top = -INFINITY, weight = 0.0f;
    for (int j = lane; j < kv_len; j += 32) {
        float score = 0.0f;
        for (int d = 0; d < D; ++d) score += q[d] * k[j * D + d];
        score *= scale;
        float higher = fmaxf(top, score);
        float mend = __expf(top - higher), p = __expf(score - higher);
        top = higher;
        weight = weight * mend + p;
        for (int d = 0; d < D; ++d)
            sum[d] = sum[d] * mend + p * v[j * D + d];
    }
    for (int step = 16; step > 0; step /= 2) {
        float other = __shfl_xor_sync(0xffffffff, top, step);
        // [hole]
        // [broken]
        // float higher = fmaxf(fmaxf(top, other), -FLT_MAX);
        // float mend = __expf(top - higher);
        // top = higher;
        // weight += __shfl_xor_sync(0xffffffff, weight, step);
        // weight *= mend;
        // for (int d = 0; d < D; ++d) {
        //     sum[d] += __shfl_xor_sync(0xffffffff, sum[d], step);
        //     sum[d] *= mend;
        // }
        // [/broken]
        float higher = fmaxf(fmaxf(top, other), -FLT_MAX);
        float mend = __expf(top - higher);
        top = higher;
        float mine = weight * mend;
        weight = mine + __shfl_xor_sync(0xffffffff, mine, step);
        for (int d = 0; d < D; ++d) {
            mine = sum[d] * mend;
            sum[d] = mine + __shfl_xor_sync(0xffffffff, mine, step);
        }
        // [/hole]
    }
    for (int d = 0; d < D; ++d)
        if (d % 32 == lane) out[blockIdx.x * D + d] = sum[d] / weight;
}
// [/exercise]
