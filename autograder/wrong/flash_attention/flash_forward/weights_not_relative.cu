// expect: not relative to the maximum
#include <kw/rows.cuh>

constexpr int D = 64, QUERIES = 64, KEYS = 16;

// Launch: grid (ceil(q_len / 64), heads), block 64: a thread a query.
// q, out: (heads, q_len, D); k, v: (heads, kv_len, D).
__global__ void __launch_bounds__(QUERIES)
    flash_forward(const float* q, const float* k, const float* v,
                  float* out, int q_len, int kv_len, float scale) {
    __shared__ float4 keys[KEYS][D / 4], values[KEYS][D / 4];
    int row = blockIdx.x * QUERIES + threadIdx.x;
    k += blockIdx.y * kv_len * D;
    v += blockIdx.y * kv_len * D;
    float query[D], sum[D] = {}, top = -INFINITY, weight = 0.0f;
    for (int d = 0; d < D; ++d) {
        int at = (blockIdx.y * q_len + row) * D + d;
        query[d] = row < q_len ? q[at] * scale : 0.0f;
    }
    for (int start = 0; start < kv_len; start += KEYS) {
        kw::bring_rows<KEYS, QUERIES>(keys, k, start, kv_len);
        kw::bring_rows<KEYS, QUERIES>(values, v, start, kv_len);
        __syncthreads();
        float score[KEYS], higher = top;
#pragma unroll
        for (int j = 0; j < KEYS; ++j) {
            score[j] = kw::dot(query, keys[j]);
            if (start + j >= kv_len) score[j] = -INFINITY;
            higher = fmaxf(higher, score[j]);
        }
        float mend = __expf(top - higher);
        top = higher;
        weight *= mend;
        for (int d = 0; d < D; ++d) sum[d] *= mend;
#pragma unroll
        for (int j = 0; j < KEYS; ++j) {
            float p = __expf(score[j]);
            weight += p;
            kw::add_row(sum, p, values[j]);
        }
        __syncthreads();
    }
    if (row < q_len)
        for (int d = 0; d < D; ++d)
            out[(blockIdx.y * q_len + row) * D + d] = sum[d] / weight;
}
