// expect: base is -INFINITY there
#include <kw/rows.cuh>

constexpr int D = 64, QUERIES = 64, KEYS = 16;

// Launch: grid (ceil(q_len / 64), heads), block 64: a thread a query.
// Query i sees key j where j <= i + offset.
__global__ void __launch_bounds__(QUERIES)
    flash_causal(const float* q, const float* k, const float* v,
                 float* out, int q_len, int kv_len, int offset,
                 float scale) {
    __shared__ float4 keys[KEYS][D / 4], values[KEYS][D / 4];
    int first = blockIdx.x * QUERIES, row = first + threadIdx.x;
    k += blockIdx.y * kv_len * D;
    v += blockIdx.y * kv_len * D;
    float query[D], sum[D] = {}, top = -INFINITY, weight = 0.0f;
    int own = blockIdx.y * q_len + row;
    kw::load_row(query, q, own, scale, row < q_len);
    int stop = 0;  // from this key on nobody in the block sees any
    int last = min(first + QUERIES, q_len) - 1;  // sees the most
    stop = min(kv_len, last + offset + 1);
    for (int start = 0; start < stop; start += KEYS) {
        kw::bring_rows<KEYS, QUERIES>(keys, k, start, kv_len);
        kw::bring_rows<KEYS, QUERIES>(values, v, start, kv_len);
        __syncthreads();
        float score[KEYS], higher = top, base = 0.0f;
#pragma unroll
        for (int j = 0; j < KEYS; ++j) {
            score[j] = kw::dot(query, keys[j]);
            bool seen = start + j < kv_len && start + j <= row + offset;
            if (!seen) score[j] = -INFINITY;
            higher = fmaxf(higher, score[j]);
        }
        // Nothing seen yet: exp(-inf - 0) is 0, exp(-inf + inf) is NaN.
        base = higher;
        kw::add_tile(sum, weight, __expf(top - base), score, base, values);
        top = higher;
        __syncthreads();
    }
    float share = 0.0f;  // of a weight in the output
    if (weight > 0.0f) share = 1.0f / weight;
    if (row < q_len) kw::store_row(out, own, sum, share);
}
