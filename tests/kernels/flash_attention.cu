// O = softmax(Q K^T / sqrt(D)) V without ever holding a row of scores: keys and values come
// in tiles through shared memory, and a running maximum and sum mend what was added before.
// Q, K, V, O are (heads, length, D), fp32; optionally causal.
#include <math_constants.h>

constexpr int D = 64;
constexpr int ROWS = 32;  // queries a block, one a thread group of 4
constexpr int KEYS = 32;  // keys a tile

// Launch: grid = (ceil(length / ROWS), heads), block = 128 (4 threads a query),
// shared = 2 * KEYS * D * 4 bytes.
__global__ void __launch_bounds__(128)
    flash_attention(const float* __restrict__ q, const float* __restrict__ k,
                    const float* __restrict__ v, float* __restrict__ o, int length,
                    int causal) {
    extern __shared__ float shared[];
    using Row = float[D];
    Row* key_tile = reinterpret_cast<Row*>(shared);               // [KEYS][D]
    Row* value_tile = reinterpret_cast<Row*>(shared + KEYS * D);  // [KEYS][D]

    size_t head = (size_t)blockIdx.y * length * D;
    int row = blockIdx.x * ROWS + threadIdx.x / 4;
    int part = threadIdx.x % 4;  // this thread's columns: part, part + 4, ...
    float query[D / 4], sum[D / 4];
    for (int i = 0; i < D / 4; ++i) {
        query[i] =
            row < length ? q[head + row * D + 4 * i + part] * rsqrtf((float)D) : 0.0f;
        sum[i] = 0.0f;
    }
    float highest = -CUDART_INF_F, weight = 0.0f;

    int last = causal ? min(length, (blockIdx.x + 1) * ROWS) : length;
    for (int start = 0; start < last; start += KEYS) {
        for (int i = threadIdx.x; i < KEYS * D; i += blockDim.x) {
            bool inside = start + i / D < length;
            key_tile[i / D][i % D] = inside ? k[head + (size_t)start * D + i] : 0.0f;
            value_tile[i / D][i % D] = inside ? v[head + (size_t)start * D + i] : 0.0f;
        }
        __syncthreads();
        for (int key = 0; key < KEYS; ++key) {
            float score = 0.0f;
            for (int i = 0; i < D / 4; ++i)
                score += query[i] * key_tile[key][4 * i + part];
            // The four threads of a query are neighbours in a warp.
            score += __shfl_xor_sync(0xffffffff, score, 1);
            score += __shfl_xor_sync(0xffffffff, score, 2);
            bool seen = start + key < length && (!causal || start + key <= row);
            if (!seen) continue;
            float higher = fmaxf(highest, score);
            float mend = __expf(highest - higher), p = __expf(score - higher);
            highest = higher;
            weight = weight * mend + p;
            for (int i = 0; i < D / 4; ++i)
                sum[i] = sum[i] * mend + p * value_tile[key][4 * i + part];
        }
        __syncthreads();
    }
    if (row < length)
        for (int i = 0; i < D / 4; ++i)
            o[head + row * D + 4 * i + part] = sum[i] / weight;
}
